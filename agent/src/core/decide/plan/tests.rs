use expect_test::{Expect, expect};
use std::fmt::Write as _;
use std::sync::Arc;

use tideline_common::{ConflictPolicy, Digest, Impersonation};

use super::*;
use crate::core::model::object::Me;
use crate::core::tests::{entry, key, me, uid};

/// What is varied, and how.
type Variation<'a> = (&'a str, fn(&mut Case));

/// One situation, to be varied.
#[derive(Clone)]
struct Case {
    me: Me,
    entry: Entry,
    policy: ApplyPolicy,
    body: Body,
    record: Option<AppliedRecord>,
    seen: Option<Seen>,
    view: View,
    terminal: Option<Terminal>,
    marks: Marks,
    found: Found,
}

impl Case {
    /// Assigned, applied, seen and unchanged.
    fn unchanged() -> Self {
        let entry = entry(&key("apps", "Deployment", "web"), 1, 1);
        let policy = ApplyPolicy::default();
        let mark = mark_of(me(), &entry, &policy, Origin::Created);
        let seen = Seen {
            uid: uid("u1"),
            resource_version: "5".into(),
            generation: 1,
            managed: Some(Digest::of(b"managed")),
            mark: Some(Arc::new(mark)),
            labelled: true,
            deleting: false,
            illegible: false,
            managed_elsewhere: false,
            observed_generation: None,
            others: None,
        };
        let record = record_of(&entry, &seen, Origin::Created, false);
        Self {
            me: me(),
            entry,
            policy,
            body: Body::Present,
            record: Some(record),
            seen: Some(seen),
            view: View::Current,
            terminal: None,
            marks: Marks::Checked,
            found: Found::AsKnown,
        }
    }

    fn decide(&self) -> Decision {
        plan(Situation {
            me: self.me,
            entry: &self.entry,
            policy: Some(&self.policy),
            body: self.body,
            record: self.record.as_ref(),
            seen: self.seen.as_ref(),
            view: self.view,
            terminal: self.terminal,
            marks: self.marks,
            found: self.found,
        })
    }

    fn seen(&mut self) -> &mut Seen {
        self.seen.as_mut().unwrap()
    }

    fn mark(&mut self) -> &mut Mark {
        Arc::make_mut(self.seen().mark.as_mut().unwrap())
    }
}

fn check(cases: &[Variation], expected: &Expect) {
    let mut table = String::new();
    for (name, change) in cases {
        let mut case = Case::unchanged();
        change(&mut case);
        let decision = match case.decide() {
            Decision::Fail(reason, _) => format!("Fail({reason})"),
            Decision::Wait(reason) => format!("Wait({reason})"),
            Decision::Withhold(reason) => format!("Withhold({reason})"),
            Decision::Skip(reason, _) => format!("Skip({reason})"),
            Decision::UpdateRecord => "UpdateRecord".to_owned(),
            Decision::Nothing(why) => format!("Nothing({why:?})"),
            Decision::Apply { uid, takeover, origin } => format!("Apply {uid} {takeover:?} {origin:?}"),
            Decision::Record { uid, origin } => format!("Record {uid} {origin:?}"),
            Decision::TransferOwnership { uid, origin } => format!("TransferOwnership {uid} {origin:?}"),
            Decision::Verify { uid, origin } => format!("Verify {uid} {origin:?}"),
            Decision::Create => "Create".to_owned(),
            Decision::RunAnew(_) => "RunAnew".to_owned(),
        };
        writeln!(table, "{name:42} {decision}").unwrap();
    }
    expected.assert_eq(&table);
}

/// Changes of it were none of our business until then: nothing shows that it is as its source says.
#[test]
fn a_namespace_that_was_only_implied_is_applied_once_it_is_placed_itself() {
    let mut case = Case::unchanged();
    case.record.as_mut().unwrap().implied = true;
    assert!(matches!(case.decide(), Decision::Apply { .. }), "{:?}", case.decide());
    case.entry.implied = true;
    assert_eq!(case.decide(), Decision::Nothing(NoAction::Unchanged));
}

#[test]
fn an_unchanged_object_is_left_alone() {
    check(
        &[
            ("unchanged", |_| {}),
            ("another manager changed its fields", |case| case.seen().resource_version = "9".into()),
            ("its body is missing", |case| case.body = Body::Missing),
            ("its watch is lost", |case| {
                case.seen = None;
                case.view = View::Lost;
            }),
            ("create-only, and changed in the space", |case| {
                case.policy.mode = ApplyMode::CreateOnly;
                case.entry.input = Digest::of(b"new");
            }),
            ("create-only, under another policy", |case| {
                case.policy.mode = ApplyMode::CreateOnly;
                case.entry.policy = Digest::of(b"new");
            }),
            ("create-only, and deleted", |case| {
                case.policy.mode = ApplyMode::CreateOnly;
                case.seen = None;
            }),
            ("a finished job, removed by its TTL", |case| {
                case.seen = None;
                case.terminal = Some(Terminal::Finished);
            }),
            ("the same, and the journal lost", |case| {
                (case.seen, case.record) = (None, None);
                case.terminal = Some(Terminal::Finished);
            }),
            ("a job that is gone, and had a TTL", |case| {
                case.seen = None;
                case.terminal = Some(Terminal::Started);
            }),
            ("the same, and the journal lost, unseen", |case| {
                (case.seen, case.record, case.view) = (None, None, View::Lost);
                case.terminal = Some(Terminal::Started);
            }),
            ("the same, create-only", |case| {
                (case.seen, case.policy.mode) = (None, ApplyMode::CreateOnly);
                case.terminal = Some(Terminal::Started);
            }),
            ("the same, while the watch is lost", |case| {
                (case.seen, case.view) = (None, View::Lost);
                case.terminal = Some(Terminal::Started);
            }),
            ("the same, changed in the space", |case| {
                case.seen = None;
                case.terminal = Some(Terminal::Started);
                case.entry.input = Digest::of(b"new");
                case.record.as_mut().unwrap().template = Some(Digest::of(b"template"));
            }),
            ("the same, to be recreated for that", |case| {
                case.seen = None;
                case.terminal = Some(Terminal::Started);
                case.policy.recreate = Recreate::OnImmutable;
                case.entry.input = Digest::of(b"new");
                case.record.as_mut().unwrap().template = Some(Digest::of(b"template"));
            }),
            ("a job that may have run", |case| {
                (case.seen, case.record) = (None, None);
                case.terminal = Some(Terminal::MayHaveRun);
            }),
            ("the same, released", |case| {
                (case.seen, case.record) = (None, None);
                case.terminal = Some(Terminal::Released);
            }),
            ("to be written as another account", |case| {
                case.entry.impersonate =
                    Some(Arc::new(Impersonation { namespace: "tideline".into(), name: "retail".into() }));
            }),
            ("an implied namespace, never looked at", |case| {
                case.entry.implied = true;
                (case.record, case.seen, case.view) = (None, None, View::NamespaceExcluded);
            }),
            ("an implied namespace, somebody else's", |case| {
                case.entry.implied = true;
                case.record = None;
                case.seen().mark = None;
            }),
            ("an implied namespace, ours, changed", |case| {
                case.entry.implied = true;
                case.seen().managed = None;
            }),
            ("changed locally, to be reported only", |case| {
                case.policy.drift = DriftPolicy::Report;
                case.seen().managed = None;
            }),
            ("the same, under another policy", |case| {
                case.policy.drift = DriftPolicy::Report;
                case.entry.policy = Digest::of(b"new");
                case.seen().managed = None;
            }),
            ("the same, told before", |case| {
                case.policy.drift = DriftPolicy::Report;
                case.record.as_mut().unwrap().drifted = Some("today".into());
            }),
        ],
        &expect![[r#"
            unchanged                                  Nothing(Unchanged)
            another manager changed its fields         Nothing(Unchanged)
            its body is missing                        Nothing(Unchanged)
            its watch is lost                          Nothing(Unchanged)
            create-only, and changed in the space      Nothing(Unchanged)
            create-only, under another policy          UpdateRecord
            create-only, and deleted                   Nothing(Terminal)
            a finished job, removed by its TTL         Nothing(Terminal)
            the same, and the journal lost             Nothing(Terminal)
            a job that is gone, and had a TTL          Withhold(Vanished)
            the same, and the journal lost, unseen     Withhold(Vanished)
            the same, create-only                      Nothing(Terminal)
            the same, while the watch is lost          Nothing(Unchanged)
            the same, changed in the space             Withhold(Vanished)
            the same, to be recreated for that         RunAnew
            a job that may have run                    Withhold(MayHaveRun)
            the same, released                         Create
            to be written as another account           UpdateRecord
            an implied namespace, never looked at      Nothing(Unchanged)
            an implied namespace, somebody else's      Nothing(Unchanged)
            an implied namespace, ours, changed        Record u1 Created
            changed locally, to be reported only       Nothing(Drifted)
            the same, under another policy             Nothing(Drifted)
            the same, told before                      Nothing(Drifted)
        "#]],
    );
}

#[test]
fn a_change_of_source_or_object_is_applied() {
    check(
        &[
            ("its input", |case| case.entry.input = Digest::of(b"new")),
            ("its policy", |case| case.entry.policy = Digest::of(b"new")),
            ("its source, of the same content", |case| case.entry.source.uid = uid("s9")),
            ("its source's generation", |case| case.entry.generation = 9),
            ("a field of ours, locally", |case| case.seen().managed = Some(Digest::of(b"other"))),
            ("to be let go of, while the watch is lost", |case| {
                (case.found, case.view, case.seen) = (Found::DueForOrphaning, View::Lost, None);
            }),
            ("a field of others, locally", |case| case.seen().generation = 2),
            ("any, once one of ours was given back", |case| {
                case.record.as_mut().unwrap().change_detector = ChangeDetector::Version;
                case.seen().generation = 2;
            }),
            ("its label is gone", |case| case.seen().labelled = false),
            ("its mark is gone", |case| case.seen().mark = None),
            ("its mark is garbled", |case| case.mark().local = key("", "ConfigMap", "other")),
            ("posted before", |case| {
                case.entry.input = Digest::of(b"new");
                case.record.as_mut().unwrap().posted = true;
            }),
            ("its input, while the watch is lost", |case| {
                case.entry.input = Digest::of(b"new");
                case.seen = None;
                case.view = View::Lost;
            }),
            ("its input, whose body is missing", |case| {
                case.entry.input = Digest::of(b"new");
                case.body = Body::Missing;
            }),
            ("deleted", |case| case.seen = None),
            ("an implied namespace, deleted", |case| {
                case.entry.implied = true;
                case.policy.mode = ApplyMode::CreateOnly;
                case.terminal = Some(Terminal::CreatedOnce);
                case.seen = None;
            }),
            ("deleted and made again by somebody", |case| {
                case.seen().uid = uid("u2");
                case.seen().mark = None;
            }),
            ("adopted, and changed locally", |case| {
                case.record.as_mut().unwrap().origin = Origin::Adopted;
                case.seen().managed = None;
            }),
            ("being deleted", |case| case.seen().deleting = true),
            ("a drifted one's policy", |case| {
                case.policy.drift = DriftPolicy::Report;
                case.entry.policy = Digest::of(b"new");
                case.record.as_mut().unwrap().drifted = Some("today".into());
                case.seen().managed = None;
            }),
            ("a drifted one's input, not looked at", |case| {
                case.policy.drift = DriftPolicy::Report;
                case.entry.input = Digest::of(b"new");
                case.seen().managed = None;
            }),
        ],
        &expect![[r"
            its input                                  Apply u1 None Created
            its policy                                 Apply u1 None Created
            its source, of the same content            Apply u1 None Created
            its source's generation                    Apply u1 None Created
            a field of ours, locally                   Apply u1 None Created
            to be let go of, while the watch is lost   Create
            a field of others, locally                 Nothing(Unchanged)
            any, once one of ours was given back       Apply u1 None Created
            its label is gone                          Apply u1 None Created
            its mark is gone                           Apply u1 None Created
            its mark is garbled                        Apply u1 None Created
            posted before                              Apply u1 Posted Created
            its input, while the watch is lost         Apply u1 None Created
            its input, whose body is missing           Fail(BodyMissing)
            deleted                                    Create
            an implied namespace, deleted              Create
            deleted and made again by somebody         Apply u2 Adopt Adopted
            adopted, and changed locally               Apply u1 None Adopted
            being deleted                              Wait(Finalizing)
            a drifted one's policy                     Apply u1 None Created
            a drifted one's input, not looked at       Apply u1 None Created
        "]],
    );
}

#[test]
fn an_object_that_is_never_applied_changes_owner_by_its_mark() {
    fn handed_over(case: &mut Case) {
        case.policy.mode = ApplyMode::CreateOnly;
        case.entry.source.uid = uid("s9");
        case.body = Body::Missing;
    }
    check(
        &[
            ("create-only", handed_over),
            ("the same, marked before a crash", |case| {
                handed_over(case);
                case.mark().source.uid = uid("s9");
            }),
            ("the same, known to the journal alone", |case| {
                handed_over(case);
                case.record.as_mut().unwrap().source = uid("s9");
            }),
            ("the same, known to both", |case| {
                handed_over(case);
                case.record.as_mut().unwrap().source = uid("s9");
                case.mark().source.uid = uid("s9");
            }),
            ("the same, known to neither", |case| {
                handed_over(case);
                case.record = None;
            }),
            ("changed and without its mark", |case| {
                handed_over(case);
                case.seen().managed = None;
                case.seen().mark = None;
            }),
            ("under the mark of a copy", |case| {
                handed_over(case);
                case.mark().local = key("", "ConfigMap", "other");
            }),
            ("without its mark, known", |case| {
                case.policy.mode = ApplyMode::CreateOnly;
                case.seen().mark = None;
            }),
            ("its watch is lost", |case| {
                handed_over(case);
                case.seen = None;
                case.view = View::Lost;
            }),
            ("deleted", |case| {
                handed_over(case);
                (case.seen, case.body) = (None, Body::Present);
            }),
            ("being deleted", |case| {
                handed_over(case);
                case.seen().deleting = true;
            }),
            ("another hub's", |case| {
                handed_over(case);
                case.mark().hub = "33333333-3333-4333-8333-333333333333".parse().unwrap();
            }),
            ("adopted", |case| {
                handed_over(case);
                case.record.as_mut().unwrap().origin = Origin::Adopted;
            }),
            ("withheld", |case| {
                handed_over(case);
                case.entry.state = EntryState::Withheld(Reason::Conflict);
            }),
            ("an implied namespace", |case| {
                case.entry.implied = true;
                case.record.as_mut().unwrap().implied = true;
                case.entry.source.uid = uid("s9");
            }),
            ("the same, whose mark could not be written", |case| {
                case.entry.implied = true;
                case.entry.source.uid = uid("s9");
                case.record = Some(record_of(&case.entry, case.seen.as_ref().unwrap(), Origin::Created, true));
            }),
            ("the same, of a former target", |case| {
                case.entry.implied = true;
                case.record = Some(record_of(&case.entry, case.seen.as_ref().unwrap(), Origin::Created, true));
                case.mark().target = crate::core::tests::heir(0);
                case.me.formers = case.me.formers.with(crate::core::tests::heir(0));
            }),
        ],
        &expect![[r#"
            create-only                                TransferOwnership u1 Created
            the same, marked before a crash            Record u1 Created
            the same, known to the journal alone       TransferOwnership u1 Created
            the same, known to both                    Nothing(Unchanged)
            the same, known to neither                 TransferOwnership u1 Created
            changed and without its mark               TransferOwnership u1 Created
            under the mark of a copy                   TransferOwnership u1 Created
            without its mark, known                    Nothing(Unchanged)
            its watch is lost                          TransferOwnership u1 Created
            deleted                                    Create
            being deleted                              Wait(Finalizing)
            another hub's                              Skip(Conflict)
            adopted                                    TransferOwnership u1 Adopted
            withheld                                   Withhold(Conflict)
            an implied namespace                       TransferOwnership u1 Created
            the same, whose mark could not be written  Nothing(Unchanged)
            the same, of a former target               Nothing(Unchanged)
        "#]],
    );
}

#[test]
fn an_object_unknown_to_the_journal_is_judged_by_its_mark() {
    check(
        &[
            ("nothing there", |case| (case.seen, case.record) = (None, None)),
            ("the same, and the watch is lost", |case| {
                (case.seen, case.record) = (None, None);
                case.view = View::Lost;
            }),
            ("ours", |case| case.record = None),
            ("ours, the journal was lost", |case| {
                case.record = None;
                case.marks = Marks::Believed;
            }),
            ("ours of an older input, the journal was lost", |case| {
                case.record = None;
                case.marks = Marks::Believed;
                case.entry.input = Digest::of(b"new");
            }),
            ("ours, create-only", |case| {
                case.record = None;
                case.policy.mode = ApplyMode::CreateOnly;
            }),
            ("another hub's", |case| {
                case.record = None;
                case.mark().hub = "33333333-3333-4333-8333-333333333333".parse().unwrap();
            }),
            ("another hub's, though in the journal", |case| {
                case.mark().hub = "33333333-3333-4333-8333-333333333333".parse().unwrap();
            }),
            ("another target's", |case| {
                case.record = None;
                case.mark().target = "33333333-3333-4333-8333-333333333333".parse().unwrap();
            }),
            ("a copy", |case| {
                case.record = None;
                case.mark().local = key("", "ConfigMap", "other");
            }),
            ("unmarked", |case| {
                case.record = None;
                case.seen().mark = None;
            }),
            ("unmarked, and Helm's", |case| {
                case.record = None;
                case.seen().mark = None;
                case.seen().managed_elsewhere = true;
            }),
            ("the same, to be taken over always", |case| {
                case.record = None;
                case.seen().mark = None;
                case.seen().managed_elsewhere = true;
                case.policy.takeover = Takeover::Always;
                case.policy.conflicts = ConflictPolicy::Force;
            }),
            ("a mark that cannot be read, to be taken over always", |case| {
                case.record = None;
                (case.seen().mark, case.seen().illegible) = (None, true);
                case.policy.takeover = Takeover::Always;
            }),
            ("the same, known to the journal, under our label", |case| {
                (case.seen().mark, case.seen().illegible) = (None, true);
            }),
            ("the same, known to the journal, under another's", |case| {
                (case.seen().mark, case.seen().illegible, case.seen().labelled) = (None, true, false);
            }),
            ("unmarked, never to be taken over", |case| {
                case.record = None;
                case.seen().mark = None;
                case.policy.takeover = Takeover::Never;
            }),
            ("unmarked, create-only", |case| {
                case.record = None;
                case.seen().mark = None;
                case.policy.mode = ApplyMode::CreateOnly;
            }),
            ("unmarked, and Helm's, create-only", |case| {
                case.record = None;
                case.seen().mark = None;
                case.seen().managed_elsewhere = true;
                case.policy.mode = ApplyMode::CreateOnly;
            }),
            ("unmarked, create-only, being deleted", |case| {
                case.record = None;
                case.seen().mark = None;
                case.seen().deleting = true;
                case.policy.mode = ApplyMode::CreateOnly;
            }),
        ],
        &expect![[r#"
            nothing there                              Create
            the same, and the watch is lost            Create
            ours                                       Apply u1 Posted Created
            ours, the journal was lost                 Verify u1 Created
            ours of an older input, the journal was lost Apply u1 Posted Created
            ours, create-only                          Record u1 Created
            another hub's                              Skip(Conflict)
            another hub's, though in the journal       Skip(Conflict)
            another target's                           Skip(Copy)
            a copy                                     Skip(Copy)
            unmarked                                   Apply u1 Adopt Adopted
            unmarked, and Helm's                       Skip(Unmanaged)
            the same, to be taken over always          Apply u1 Adopt Adopted
            a mark that cannot be read, to be taken over always Skip(AgentTooOld)
            the same, known to the journal, under our label Apply u1 None Created
            the same, known to the journal, under another's Skip(AgentTooOld)
            unmarked, never to be taken over           Skip(Unmanaged)
            unmarked, create-only                      TransferOwnership u1 Adopted
            unmarked, and Helm's, create-only          Skip(Unmanaged)
            unmarked, create-only, being deleted       Wait(Finalizing)
        "#]],
    );
}

#[test]
fn nothing_is_done_before_it_may_be() {
    check(
        &[
            ("withheld", |case| case.entry.state = EntryState::Withheld(Reason::Conflict)),
            ("held", |case| {
                case.entry.state = EntryState::Hold(Reason::SourceUnreadable);
                case.seen = None;
            }),
            ("its kind was not listed", |case| case.view = View::Unlisted),
            ("its kind is not served", |case| case.view = View::Missing),
            ("discovery failed", |case| case.view = View::Unknown),
            ("in no namespace that is kept", |case| case.view = View::NamespaceExcluded),
        ],
        &expect![[r"
            withheld                                   Withhold(Conflict)
            held                                       Withhold(SourceUnreadable)
            its kind was not listed                    Wait(Progressing)
            its kind is not served                     Fail(KindMissing)
            discovery failed                           Wait(Unavailable)
            in no namespace that is kept               Withhold(OtherNamespace)
        "]],
    );
}

#[test]
fn carrying_out_a_decision_leaves_nothing_to_do() {
    let mut case = Case::unchanged();
    case.entry.input = Digest::of(b"new");
    let Decision::Apply { origin, .. } = case.decide() else { panic!("a change is applied") };
    let mark = mark_of(me(), &case.entry, &case.policy, origin);
    case.seen().mark = Some(Arc::new(mark));
    case.seen().managed = Some(Digest::of(b"new"));
    case.record = Some(record_of(&case.entry, case.seen.as_ref().unwrap(), origin, false));
    assert_eq!(case.decide(), Decision::Nothing(NoAction::Unchanged));
}
