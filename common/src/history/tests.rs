use uuid::Uuid;

use super::*;
use crate::ids::{Epoch, Revision};

fn shown() -> Shown {
    let point = RevisionPoint {
        segment: SegmentId::from_uuid(Uuid::from_u128(0xa)),
        id: RevisionId::from_uuid(Uuid::from_u128(0xb)),
    };
    Shown { version: Version { epoch: Epoch(2), revision: Revision(71) }, point }
}

fn target(number: u128) -> TargetId {
    TargetId::from_uuid(Uuid::from_u128(number))
}

#[test]
fn a_shown_revision_survives_serialization() {
    let text = shown().to_string();
    assert_eq!(text, "2.71.00000000-0000-0000-0000-00000000000a.00000000-0000-0000-0000-00000000000b");
    assert_eq!(text.parse(), Ok(shown()));
    for wrong in
        ["", "2.71", "2.71.a.b", "2.x.00000000-0000-0000-0000-00000000000a.00000000-0000-0000-0000-00000000000b"]
    {
        assert!(wrong.parse::<Shown>().is_err(), "{wrong:?}");
    }
}

#[test]
fn an_attestation_is_bound_to_one_key_target_and_revision() {
    let (key, other) = (SigningKey::from_seed([1; 32]), SigningKey::from_seed([2; 32]));
    let attestation = Attestation::unsigned(target(1), shown()).sign(&key);
    assert!(attestation.is_by(&key.public()));
    assert!(!attestation.is_by(&other.public()));
    let later = Version { revision: Revision(72), ..attestation.version };
    let elsewhere = RevisionPoint { segment: SegmentId::from_uuid(Uuid::from_u128(0xc)), ..attestation.point };
    let unsigned = Attestation::unsigned(target(1), shown());
    let forged = [
        Attestation { version: later, ..attestation },
        Attestation { point: elsewhere, ..attestation },
        Attestation { target: target(2), ..attestation },
        unsigned,
    ];
    for forged in forged {
        assert!(!forged.is_by(&key.public()), "{forged:?}");
    }
}

#[test]
fn an_attestation_survives_serialization() {
    let attestation = Attestation::unsigned(target(1), shown()).sign(&SigningKey::from_seed([1; 32]));
    let text = serde_json::to_string(&attestation).unwrap();
    assert_eq!(serde_json::from_str::<Attestation>(&text).unwrap(), attestation);
    assert!(serde_json::from_str::<Attestation>(&text.replace("==\"", "\"")).is_err(), "it is cut");
}
