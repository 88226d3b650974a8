//! What travels between agent and hub: the real messages, as the bytes that they really are.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tideline_agent::core::{Answer, LinkFailure, Request};
use tideline_common::TargetId;
use tideline_common::replay::RunNumber;
use tideline_common::wire::codec;
use tideline_common::wire::v1::{BodiesAnswer, EnrolAnswer, Refusal, ReportedRequest, SessionRequest};
use tideline_hub::link::core as link;

use crate::hub::key;

/// A message with its media type.
#[derive(Clone, Debug)]
pub(crate) struct Bytes(&'static str, Vec<u8>);

/// A request on its way.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    Enrol,
    /// With its query.
    Session(Bytes, String),
    /// Its query.
    Desired(String),
    Bodies(Bytes),
    Reported(Bytes),
}

/// One sending of a request, with the numbers that it took of the hub's runs.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    pub(crate) packet: Packet,
    pub(crate) numbers: String,
    /// In whose name it is signed.
    pub(crate) target: Option<TargetId>,
}

/// An answer on its way.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// The edges' own affair: the request is sent again with another number.
    BadNumber(RunNumber),
    Enrolled(Bytes),
    Session(Bytes),
    Desired(Bytes),
    Bodies(Bytes),
    Reported(Bytes),
    Refused(Bytes),
}

fn write(message: &impl Serialize) -> Bytes {
    let (media_type, bytes) = codec::encode(message).expect("every message can be written");
    Bytes(media_type, bytes)
}

fn read<T: DeserializeOwned>(Bytes(media_type, bytes): &Bytes) -> T {
    codec::decode(media_type, bytes).expect("what one side wrote the other can read")
}

impl Packet {
    pub(crate) fn of(request: &Request) -> Self {
        match request {
            Request::Enrol(_) => Self::Enrol,
            Request::Session(request) => Self::Session(write(request), codec::session_query(request)),
            Request::Desired(request) => Self::Desired(codec::desired_query(request)),
            Request::Bodies(request) => Self::Bodies(write(request)),
            Request::Reported(request) => Self::Reported(write(request)),
        }
    }

    /// What the hub's link is asked; none for an enrolment, which is not the link's.
    pub(crate) fn request(&self, from: link::Origin, named: Option<TargetId>) -> Option<link::Request> {
        match self {
            Self::Enrol => None,
            Self::Session(bytes, query) => {
                let request =
                    SessionRequest { formers: codec::parse_session_query(query), asked_as: named, ..read(bytes) };
                Some(link::Request::session(request, from, &key().public()))
            }
            Self::Desired(query) => {
                let request = codec::parse_desired_query(query).expect("what one side wrote the other can read");
                Some(link::Request::Desired(request))
            }
            Self::Bodies(bytes) => Some(link::Request::Bodies(read(bytes))),
            Self::Reported(bytes) => Some(link::Request::Reported(Box::new(read::<ReportedRequest>(bytes)))),
        }
    }
}

impl Reply {
    pub(crate) fn enrolled(answer: &EnrolAnswer) -> Self {
        Self::Enrolled(write(answer))
    }

    pub(crate) fn bodies(answer: &BodiesAnswer) -> Self {
        Self::Bodies(write(answer))
    }

    pub(crate) fn of(answer: &Result<link::Answer, Refusal>) -> Self {
        match answer {
            Ok(link::Answer::Session(answer)) => Self::Session(write(answer)),
            Ok(link::Answer::Desired(answer)) => Self::Desired(write(answer)),
            Ok(link::Answer::Reported(answer)) => Self::Reported(write(answer)),
            Err(refusal) => Self::Refused(write(refusal)),
        }
    }

    pub(crate) fn result(&self) -> Result<Answer, LinkFailure> {
        match self {
            Self::BadNumber(next) => unreachable!("the agent's edge sends it again, with {next}"),
            Self::Enrolled(bytes) => Ok(Answer::Enrolled(read(bytes))),
            Self::Session(bytes) => Ok(Answer::Session(read(bytes))),
            Self::Desired(bytes) => Ok(Answer::Desired(read(bytes))),
            Self::Bodies(bytes) => Ok(Answer::Bodies(read(bytes))),
            Self::Reported(bytes) => Ok(Answer::Reported(read(bytes))),
            Self::Refused(bytes) => Err(LinkFailure::Refused(read(bytes))),
        }
    }
}
