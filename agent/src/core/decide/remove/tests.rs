use expect_test::{Expect, expect};
use std::fmt::Write as _;
use std::sync::Arc;

use tideline_common::{Digest, Mark, Prune, PruneAdopted, Takeover};

use super::*;
use crate::core::decide::plan::{mark_of, record_of};
use crate::core::interface::write::RemovalPolicy;
use crate::core::model::removal::JournalAge;
use crate::core::tests::{entry, key, me, uid};

/// What is varied, and how.
type Variation<'a> = (&'a str, fn(&mut Case));

#[derive(Clone)]
struct Case {
    former: Entry,
    applied: Option<ApplyPolicy>,
    policy: RemovalPolicy,
    assigned: ApplyPolicy,
    entry: Option<Entry>,
    record: Option<AppliedRecord>,
    seen: Option<Seen>,
    unshown: bool,
    view: View,
    inspection: Option<Inspection>,
    fresh: bool,
    journal: JournalAge,
    leaves_too: bool,
    decommission: Decommission,
}

impl Case {
    /// Created by us, of a source that is not assigned any more.
    fn plain() -> Self {
        Self::of(&key("", "ConfigMap", "web"))
    }

    fn of(key: &ObjectKey) -> Self {
        let former = entry(key, 1, 1);
        let policy = ApplyPolicy::default();
        let seen = Seen {
            uid: uid("u1"),
            resource_version: "5".into(),
            generation: 0,
            managed: Some(Digest::of(b"managed")),
            mark: Some(Arc::new(mark_of(me(), &former, &policy, Origin::Created))),
            labelled: true,
            deleting: false,
            illegible: false,
            managed_elsewhere: false,
            observed_generation: None,
            others: None,
        };
        Self {
            record: Some(record_of(&former, &seen, Origin::Created, false)),
            policy: RemovalPolicy::Absence(Some(PrunePolicy::of(&policy))),
            assigned: policy.clone(),
            applied: Some(policy),
            former,
            entry: None,
            seen: Some(seen),
            unshown: false,
            view: View::Current,
            inspection: None,
            fresh: false,
            journal: JournalAge::Current,
            leaves_too: false,
            decommission: Decommission::No,
        }
    }

    fn judge(&self) -> Verdict {
        may_delete(&Evidence {
            me: me(),
            key: &self.former.key,
            ground: Ground::Unassigned(&self.former.source.uid),
            entry: self.entry.as_ref(),
            record: self.record.as_ref(),
            policy: self.policy,
            applied: self.applied.as_ref(),
            assigned: Some(&self.assigned),
            seen: self.seen.as_ref(),
            unshown: self.unshown,
            view: self.view,
            inspection: self.inspection,
            fresh: self.fresh,
            journal: self.journal,
            leaves_too: self.leaves_too,
            decommission: self.decommission,
        })
    }

    fn seen(&mut self) -> &mut Seen {
        self.seen.as_mut().unwrap()
    }

    fn mark(&mut self) -> &mut Mark {
        Arc::make_mut(self.seen().mark.as_mut().unwrap())
    }
}

fn text(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Delete(Authorised { uid, how: How::Delete, .. }) => format!("Delete {uid}"),
        Verdict::Orphan(Authorised { uid, how: How::Orphan, .. }) => format!("Orphan {uid}"),
        Verdict::Hold(reason) => format!("Hold({reason})"),
        other => format!("{other:?}"),
    }
}

/// The policy that the set had last, where a removal follows from absence.
fn last(case: &mut Case) -> &mut PrunePolicy {
    match &mut case.policy {
        RemovalPolicy::Absence(Some(last)) => last,
        other => panic!("{other:?}"),
    }
}

const SAYS_DELETE: PrunePolicy = PrunePolicy { prune: Prune::Delete, ..PrunePolicy::LEAST };
const SAYS_ORPHAN: PrunePolicy = PrunePolicy::LEAST;

fn check(plain: fn() -> Case, cases: &[Variation], expected: &Expect) {
    let mut table = String::new();
    for (name, change) in cases {
        let mut case = plain();
        change(&mut case);
        writeln!(table, "{name:46} {}", text(&case.judge())).unwrap();
    }
    expected.assert_eq(&table);
}

#[test]
fn only_our_own_objects_are_deleted() {
    check(
        Case::plain,
        &[
            ("ours by journal and mark", |_| {}),
            ("ours by its mark, the journal lost", |case| (case.record, case.applied) = (None, None)),
            ("ours by the journal, its mark gone", |case| case.seen().mark = None),
            ("ours by the journal, its label gone", |case| case.seen = None),
            ("the same, and the watch is lost", |case| {
                case.seen = None;
                case.view = View::Lost;
            }),
            ("seen before the watch was lost", |case| case.view = View::Lost),
            ("seen before the watch was lost, and read just now", |case| {
                (case.view, case.fresh) = (View::Lost, true);
            }),
            ("ours by the journal, and nothing on it is ours any more", |case| {
                let seen = case.seen();
                (seen.mark, seen.labelled, seen.managed) = (None, false, None);
            }),
            ("not in the journal, unmarked", |case| {
                case.record = None;
                case.seen().mark = None;
            }),
            ("somebody else's with the same name, unmarked", |case| {
                case.seen().uid = uid("u2");
                case.seen().mark = None;
            }),
            ("another hub's", |case| {
                case.mark().hub = "33333333-3333-4333-8333-333333333333".parse().unwrap();
            }),
            ("a mark that cannot be read", |case| {
                case.record = None;
                illegible(case);
            }),
            ("the same, and the journal knows it", illegible),
            ("the same without our label, which the journal knows", |case| {
                illegible(case);
                case.seen().labelled = false;
            }),
            ("the same without our label, and unknown", |case| {
                case.record = None;
                illegible(case);
                case.seen().labelled = false;
            }),
            ("a copy of another object", |case| {
                case.record = None;
                case.mark().local = key("", "ConfigMap", "other");
            }),
            ("ours, but its mark is a copy", |case| case.mark().local = key("", "ConfigMap", "other")),
            ("of another target", |case| {
                case.record = None;
                case.mark().target = "33333333-3333-4333-8333-333333333333".parse().unwrap();
            }),
            ("of another source", |case| {
                case.record.as_mut().unwrap().source = uid("s2");
                case.mark().source.uid = uid("s2");
            }),
            ("not there", |case| (case.seen, case.record) = (None, None)),
            ("not there, as far as was shown", |case| {
                (case.seen, case.record, case.unshown) = (None, None, true);
            }),
            ("not seen, the watch is lost", |case| {
                (case.seen, case.record) = (None, None);
                case.view = View::Lost;
            }),
            ("not seen, its kind not yet listed", |case| {
                case.seen = None;
                case.view = View::Unlisted;
            }),
            ("its kind is not served", |case| {
                case.seen = None;
                case.view = View::Missing;
            }),
            ("being deleted", |case| case.seen().deleting = true),
            ("in a namespace that is not kept any more", |case| {
                case.seen = None;
                case.view = View::NamespaceExcluded;
            }),
            ("in a namespace that never was kept", |case| {
                (case.seen, case.record) = (None, None);
                case.view = View::NamespaceExcluded;
            }),
        ],
        &expect![[r#"
            ours by journal and mark                       Delete u1
            ours by its mark, the journal lost             Delete u1
            ours by the journal, its mark gone             Delete u1
            ours by the journal, its label gone            Read
            the same, and the watch is lost                Read
            seen before the watch was lost                 Read
            seen before the watch was lost, and read just now Delete u1
            ours by the journal, and nothing on it is ours any more Forget
            not in the journal, unmarked                   Forget
            somebody else's with the same name, unmarked   Forget
            another hub's                                  Forget
            a mark that cannot be read                     Hold(AgentTooOld)
            the same, and the journal knows it             Delete u1
            the same without our label, which the journal knows Hold(AgentTooOld)
            the same without our label, and unknown        Forget
            a copy of another object                       Forget
            ours, but its mark is a copy                   Hold(Copy)
            of another target                              Forget
            of another source                              Forget
            not there                                      Forget
            not there, as far as was shown                 Read
            not seen, the watch is lost                    Read
            not seen, its kind not yet listed              Wait
            its kind is not served                         Read
            being deleted                                  Hold(Finalizing)
            in a namespace that is not kept any more       Hold(OtherNamespace)
            in a namespace that never was kept             Forget
        "#]],
    );
}

#[test]
fn an_object_that_is_assigned_again_changes_owner() {
    check(
        Case::plain,
        &[
            ("to another source, not applied yet", |case| case.entry = Some(entry(&case.former.key, 2, 1))),
            ("to another source, applied", |case| {
                case.entry = Some(entry(&case.former.key, 2, 1));
                case.record.as_mut().unwrap().source = uid("s2");
            }),
            ("to another source, withheld", |case| {
                let mut other = entry(&case.former.key, 2, 1);
                other.state = tideline_common::EntryState::Withheld(Reason::Conflict);
                case.entry = Some(other);
            }),
            ("to another source, nothing there", |case| {
                case.entry = Some(entry(&case.former.key, 2, 1));
                (case.seen, case.record) = (None, None);
            }),
            ("to the same source again", |case| case.entry = Some(case.former.clone())),
            ("to another source, and let go of by another removal", |case| {
                case.entry = Some(entry(&case.former.key, 2, 1));
                case.record.as_mut().unwrap().orphaning = true;
                case.seen = None;
            }),
            ("the same, as far as is known", |case| {
                case.entry = Some(entry(&case.former.key, 2, 1));
                case.record.as_mut().unwrap().orphaning = true;
                (case.seen, case.view) = (None, View::Unlisted);
            }),
        ],
        &expect![[r"
            to another source, not applied yet             TransferOwnership
            to another source, applied                     Forget
            to another source, withheld                    TransferOwnership
            to another source, nothing there               Forget
            to the same source again                       Forget
            to another source, and let go of by another removal Forget
            the same, as far as is known                   TransferOwnership
        "]],
    );
}

#[test]
fn the_least_destructive_policy_decides() {
    check(
        Case::plain,
        &[
            ("the policy says orphan", |case| case.applied.as_mut().unwrap().prune = Prune::Orphan),
            ("the mark says orphan", |case| case.mark().prune = Prune::Orphan),
            ("it is being let go of, its mark is gone", |case| {
                case.record.as_mut().unwrap().orphaning = true;
                case.seen = None;
            }),
            ("the same, and it was looked at", |case| {
                case.record.as_mut().unwrap().orphaning = true;
                case.seen().mark = None;
                case.seen().labelled = false;
            }),
            ("it was to be let go of, and that was withdrawn", |case| case.record.as_mut().unwrap().orphaning = true),
            ("nothing says anything", |case| {
                (case.policy, case.applied) = (RemovalPolicy::default(), None);
                case.seen().mark = None;
            }),
            ("adopted", |case| case.mark().origin = Origin::Adopted),
            ("adopted by the journal", |case| case.record.as_mut().unwrap().origin = Origin::Adopted),
            ("adopted, to be pruned as created", |case| {
                case.record.as_mut().unwrap().origin = Origin::Adopted;
                case.applied.as_mut().unwrap().prune_adopted = PruneAdopted::AsCreated;
                case.mark().prune_adopted = PruneAdopted::AsCreated;
                last(case).prune_adopted = PruneAdopted::AsCreated;
            }),
            ("the set said orphan last", |case| last(case).prune = Prune::Orphan),
            ("it was assigned again, and let go of before", |case| last(case).adopted = Some(Takeover::IfUnmanaged)),
        ],
        &expect![[r"
            the policy says orphan                         Orphan u1
            the mark says orphan                           Orphan u1
            it is being let go of, its mark is gone        Read
            the same, and it was looked at                 Orphan u1
            it was to be let go of, and that was withdrawn Delete u1
            nothing says anything                          Orphan u1
            adopted                                        Orphan u1
            adopted by the journal                         Orphan u1
            adopted, to be pruned as created               Delete u1
            the set said orphan last                       Orphan u1
            it was assigned again, and let go of before    Orphan u1
        "]],
    );
}

/// It counts as adopted, is to be pruned as if it had been created, and something else manages it too.
/// A later build has written its mark.
fn illegible(case: &mut Case) {
    (case.seen().mark, case.seen().illegible, case.seen().managed_elsewhere) = (None, true, true);
}

fn as_created(case: &mut Case, by: Takeover) {
    let policy = PrunePolicy { prune_adopted: PruneAdopted::AsCreated, ..SAYS_DELETE };
    case.policy = RemovalPolicy::Tombstone(policy.overtaken(by));
    case.seen().managed_elsewhere = true;
}

#[test]
fn the_policy_of_a_tombstone_applies_to_every_removal_of_its_key() {
    check(
        || Case { policy: RemovalPolicy::Tombstone(SAYS_DELETE), ..Case::plain() },
        &[
            ("journal and mark say orphan, it says delete", |case| {
                case.applied.as_mut().unwrap().prune = Prune::Orphan;
                case.mark().prune = Prune::Orphan;
            }),
            ("journal and mark say delete, it says orphan", |case| case.policy = RemovalPolicy::Tombstone(SAYS_ORPHAN)),
            ("another source's, which has its own removal", |case| {
                case.mark().source.uid = uid("s0");
                case.record.as_mut().unwrap().source = uid("s0");
                case.leaves_too = true;
            }),
            ("another source's, which nothing speaks for", |case| {
                case.mark().source.uid = uid("s0");
                case.record.as_mut().unwrap().source = uid("s0");
            }),
            ("another source's, unknown to the journal", |case| {
                case.mark().source.uid = uid("s0");
                case.record = None;
            }),
            ("another source's, and the journal may be of long ago", |case| {
                case.mark().source.uid = uid("s0");
                case.record = None;
                case.journal = JournalAge::Unknown;
            }),
            ("another source's, which follows from absence", |case| {
                case.mark().source.uid = uid("s0");
                case.record = None;
                case.policy = RemovalPolicy::Absence(Some(SAYS_DELETE));
            }),
            ("another target's", |case| case.mark().target = "99999999-2222-4222-8222-222222222222".parse().unwrap()),
            ("nobody's", |case| {
                case.record = None;
                case.seen().mark = None;
            }),
            ("adopted", |case| case.record.as_mut().unwrap().origin = Origin::Adopted),
            ("adopted, as the hub knows", |case| {
                case.policy =
                    RemovalPolicy::Tombstone(PrunePolicy { adopted: Some(Takeover::IfUnmanaged), ..SAYS_DELETE });
            }),
            ("adopted, to be pruned as created", |case| {
                let prune_adopted = PruneAdopted::AsCreated;
                let policy = PrunePolicy { adopted: Some(Takeover::IfUnmanaged), prune_adopted, ..SAYS_DELETE };
                case.policy = RemovalPolicy::Tombstone(policy);
            }),
            ("adopted by force, to be pruned as created", |case| as_created(case, Takeover::Always)),
            ("it would have been refused, as something else manages it", |case| {
                as_created(case, Takeover::IfUnmanaged);
            }),
            ("it would have been refused, as nothing is taken over", |case| as_created(case, Takeover::Never)),
            ("it was being let go of, and is ours still", |case| case.record.as_mut().unwrap().orphaning = true),
            ("it was being let go of, and has no mark", |case| {
                case.record.as_mut().unwrap().orphaning = true;
                case.seen().mark = None;
            }),
            ("the cluster is let go of", |case| case.decommission = Decommission::Keep),
        ],
        &expect![[r"
            journal and mark say orphan, it says delete    Delete u1
            journal and mark say delete, it says orphan    Orphan u1
            another source's, which has its own removal    Forget
            another source's, which nothing speaks for     Delete u1
            another source's, unknown to the journal       Delete u1
            another source's, and the journal may be of long ago Hold(Unavailable)
            another source's, which follows from absence   Forget
            another target's                               Hold(Copy)
            nobody's                                       Forget
            adopted                                        Orphan u1
            adopted, as the hub knows                      Orphan u1
            adopted, to be pruned as created               Delete u1
            adopted by force, to be pruned as created      Delete u1
            it would have been refused, as something else manages it Orphan u1
            it would have been refused, as nothing is taken over Orphan u1
            it was being let go of, and is ours still      Delete u1
            it was being let go of, and has no mark        Orphan u1
            the cluster is let go of                       Orphan u1
        "]],
    );
}

#[test]
fn an_object_due_for_orphaning_that_is_assigned_again_is_adopted() {
    check(
        || {
            let case = Case::plain();
            Case { entry: Some(case.former.clone()), policy: RemovalPolicy::Tombstone(SAYS_ORPHAN), ..case }
        },
        &[
            ("not applied yet", |_| {}),
            ("adopted", |case| case.record.as_mut().unwrap().origin = Origin::Adopted),
            ("adopted, and not listed yet", |case| {
                case.record.as_mut().unwrap().origin = Origin::Adopted;
                (case.seen, case.view) = (None, View::Unknown);
            }),
            ("the journal lost", |case| case.record = None),
            ("to another source", |case| case.entry.as_mut().unwrap().source.uid = uid("s2")),
            ("nothing there", |case| (case.record, case.seen) = (None, None)),
            ("nothing there, as far as is known", |case| {
                (case.record, case.seen, case.view) = (None, None, View::Unlisted);
            }),
            ("let go of already", |case| {
                case.record.as_mut().unwrap().orphaning = true;
                case.seen().mark = None;
            }),
            ("takeover Never", |case| case.assigned.takeover = Takeover::Never),
            ("takeover Never, seen before the watch was lost", |case| {
                (case.assigned.takeover, case.view) = (Takeover::Never, View::Lost);
            }),
            ("takeover Never, of something implied", |case| {
                case.assigned.takeover = Takeover::Never;
                case.entry.as_mut().unwrap().implied = true;
            }),
            ("its mark cannot be read, and the journal was lost", |case| {
                case.record = None;
                illegible(case);
            }),
            ("its mark cannot be read, and its label is another's", |case| {
                illegible(case);
                case.seen().labelled = false;
            }),
            ("takeover IfUnmanaged, and others manage it", |case| case.seen().managed_elsewhere = true),
            ("it was to be deleted, which is void", |case| case.policy = RemovalPolicy::Tombstone(SAYS_DELETE)),
        ],
        &expect![[r"
            not applied yet                                TransferOwnership
            adopted                                        Forget
            adopted, and not listed yet                    TransferOwnership
            the journal lost                               TransferOwnership
            to another source                              TransferOwnership
            nothing there                                  Forget
            nothing there, as far as is known              TransferOwnership
            let go of already                              Forget
            takeover Never                                 Orphan u1
            takeover Never, seen before the watch was lost Read
            takeover Never, of something implied           TransferOwnership
            its mark cannot be read, and the journal was lost Wait
            its mark cannot be read, and its label is another's Wait
            takeover IfUnmanaged, and others manage it     Orphan u1
            it was to be deleted, which is void            Forget
        "]],
    );
}

#[test]
fn a_create_only_object_that_is_assigned_again_is_read_first() {
    check(
        || {
            let case = Case::plain();
            let assigned = ApplyPolicy { mode: ApplyMode::CreateOnly, ..ApplyPolicy::default() };
            let policy = RemovalPolicy::Tombstone(SAYS_DELETE);
            Case { entry: Some(case.former.clone()), assigned, policy, ..case }
        },
        &[
            ("it stands", |_| {}),
            ("it stands, and was looked at", |case| case.fresh = true),
            ("it is being deleted", |case| case.seen().deleting = true),
            ("not shown, and it was made", |case| case.seen = None),
            ("not shown, and it was never made", |case| (case.record, case.seen) = (None, None)),
            ("not shown, and perhaps made", |case| {
                (case.record, case.seen, case.unshown) = (None, None, true);
            }),
            ("not listed yet", |case| (case.seen, case.view) = (None, View::Unlisted)),
            ("it cannot be listed", |case| (case.seen, case.view) = (None, View::Lost)),
            ("it stood when the watch ended", |case| case.view = View::Lost),
            ("the same, and it was looked at", |case| (case.view, case.fresh) = (View::Lost, true)),
            ("withheld", |case| {
                case.entry.as_mut().unwrap().state = tideline_common::EntryState::Withheld(Reason::AgentTooOld);
                case.seen = None;
            }),
            ("its kind is gone", |case| (case.seen, case.view) = (None, View::Missing)),
            ("applied over and over, and not shown", |case| {
                (case.seen, case.assigned) = (None, ApplyPolicy::default());
            }),
            ("nothing says that it was taken out", |case| {
                (case.seen, case.policy) = (None, RemovalPolicy::Absence(None));
            }),
        ],
        &expect![[r"
            it stands                                      Read
            it stands, and was looked at                   Forget
            it is being deleted                            Wait
            not shown, and it was made                     Read
            not shown, and it was never made               Forget
            not shown, and perhaps made                    Read
            not listed yet                                 Wait
            it cannot be listed                            Read
            it stood when the watch ended                  Read
            the same, and it was looked at                 Forget
            withheld                                       Wait
            its kind is gone                               Forget
            applied over and over, and not shown           Forget
            nothing says that it was taken out             Forget
        "]],
    );
}

#[test]
fn a_namespace_goes_only_when_it_is_empty() {
    check(
        || Case::of(&key("", "Namespace", "shop")),
        &[
            ("not looked into", |_| {}),
            ("empty", |case| case.inspection = Some(Inspection { foreign: 0, ours: 0 })),
            ("something foreign is in it", |case| case.inspection = Some(Inspection { foreign: 1, ours: 0 })),
            ("something of ours is in it", |case| case.inspection = Some(Inspection { foreign: 0, ours: 1 })),
            ("adopted, to be pruned as created, empty", |case| {
                case.record.as_mut().unwrap().origin = Origin::Adopted;
                case.applied.as_mut().unwrap().prune_adopted = PruneAdopted::AsCreated;
                case.mark().prune_adopted = PruneAdopted::AsCreated;
                last(case).prune_adopted = PruneAdopted::AsCreated;
                case.inspection = Some(Inspection { foreign: 0, ours: 0 });
            }),
            ("not seen", |case| case.seen = None),
            ("empty, and gone from sight meanwhile", |case| {
                case.seen = None;
                case.inspection = Some(Inspection { foreign: 0, ours: 0 });
            }),
            ("empty, and another hub's by now", |case| {
                case.mark().hub = "33333333-3333-4333-8333-333333333333".parse().unwrap();
                case.inspection = Some(Inspection { foreign: 0, ours: 0 });
            }),
            ("it was only implied", |case| {
                case.former.implied = true;
                let mark = mark_of(me(), &case.former, &ApplyPolicy::default(), Origin::Created);
                case.seen().mark = Some(Arc::new(mark));
            }),
        ],
        &expect![[r"
            not looked into                                Inspect
            empty                                          Delete u1
            something foreign is in it                     Hold(NotEmpty)
            something of ours is in it                     Hold(NotEmpty)
            adopted, to be pruned as created, empty        Orphan u1
            not seen                                       Read
            empty, and gone from sight meanwhile           Read
            empty, and another hub's by now                Forget
            it was only implied                            Orphan u1
        "]],
    );
}

#[test]
fn after_lost_history_nothing_is_removed_by_absence() {
    let case = Case::plain();
    let verdict = may_delete(&Evidence {
        me: me(),
        key: &case.former.key,
        ground: Ground::Unexplained,
        entry: None,
        record: case.record.as_ref(),
        policy: case.policy,
        applied: case.applied.as_ref(),
        assigned: None,
        seen: case.seen.as_ref(),
        unshown: false,
        view: View::Current,
        inspection: None,
        fresh: false,
        journal: JournalAge::Current,
        leaves_too: false,
        decommission: Decommission::No,
    });
    assert_eq!(verdict, Verdict::Hold(Reason::HistoryLost));
}

#[test]
fn only_objects_that_we_created_and_that_hold_no_others_are_replaced() {
    let recreate = ApplyPolicy { recreate: Recreate::OnImmutable, ..ApplyPolicy::default() };
    let may = |case: &Case, policy: &ApplyPolicy| {
        may_replace(&case.former, policy, (case.record.as_ref(), None), &uid("u1")).is_some()
    };
    let job = Case::of(&key("batch", "Job", "x"));
    let known = [None, Some(Terminal::Released), Some(Terminal::Finished), Some(Terminal::MayHaveRun)];
    let may_be =
        known.map(|known| may_replace(&job.former, &recreate, (job.record.as_ref(), known), &uid("u1")).is_some());
    assert_eq!(may_be, [true, true, false, false], "what ran is not made again");
    assert!(may(&Case::plain(), &recreate));
    assert!(!may(&Case::plain(), &ApplyPolicy::default()));
    assert!(!may(&Case::plain(), &ApplyPolicy { mode: ApplyMode::CreateOnly, ..recreate.clone() }));
    for (group, kind) in
        [("", "Namespace"), ("", "PersistentVolumeClaim"), ("apiextensions.k8s.io", "CustomResourceDefinition")]
    {
        assert!(!may(&Case::of(&key(group, kind, "x")), &recreate), "{kind}");
    }
    let mut adopted = Case::plain();
    adopted.record.as_mut().unwrap().origin = Origin::Adopted;
    assert!(!may(&adopted, &recreate));
}
