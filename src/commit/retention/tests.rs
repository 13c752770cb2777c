use std::time::UNIX_EPOCH;

use proptest::prelude::*;

use super::*;

fn at(step: u64, seconds: u64, loss: Option<f64>) -> Summary {
    Summary {
        step,
        created: UNIX_EPOCH + Duration::from_secs(seconds),
        metrics: loss.map(|loss| ("loss".into(), loss)).into_iter().collect(),
    }
}

/// Checkpoints at steps 1, 2, … with these values of the metric, a second apart.
fn with_losses(losses: &[Option<f64>]) -> Vec<Summary> {
    let numbered = (1..).zip(losses);
    numbered.map(|(step, loss)| at(step, step, *loss)).collect()
}

fn kept(rule: &Retention, checkpoints: &[Summary]) -> Vec<u64> {
    let decisions = rule.decide(checkpoints).into_iter();
    decisions.filter(|d| d.keep).map(|d| d.step).collect()
}

fn best(mode: Mode, n: usize) -> Retention {
    Retention::keep_best("loss", mode, n).unwrap()
}

#[test]
fn the_last_are_those_with_the_highest_steps_whatever_the_gaps() {
    let checkpoints = [1, 2, 90, 1000].map(|step| at(step, 0, None));
    let rule = Retention::keep_last(2).unwrap();
    assert_eq!(kept(&rule, &checkpoints), [90, 1000]);
    assert_eq!(kept(&Retention::Last(9), &checkpoints).len(), 4);
}

#[test]
fn the_best_are_judged_by_mode() {
    let checkpoints = with_losses(&[Some(0.5), Some(0.1), Some(0.9), Some(0.3)]);
    assert_eq!(kept(&best(Mode::Min, 1), &checkpoints), [2]);
    assert_eq!(kept(&best(Mode::Max, 1), &checkpoints), [3]);
    assert_eq!(kept(&best(Mode::Min, 2), &checkpoints), [2, 4]);
}

#[test]
fn nan_and_missing_are_never_best() {
    let checkpoints = with_losses(&[Some(f64::NAN), Some(7.0), None, Some(-f64::NAN)]);
    for mode in [Mode::Min, Mode::Max] {
        assert_eq!(kept(&best(mode, 3), &checkpoints), [2]);
    }
}

#[test]
fn with_nothing_to_judge_by_nothing_is_lost() {
    let checkpoints = with_losses(&[Some(f64::NAN), None, Some(f64::NAN)]);
    let decisions = best(Mode::Min, 1).decide(&checkpoints);
    assert!(decisions.iter().all(|d| d.keep));
    assert!(decisions[0].reasons[0].contains("no checkpoint has a value"));
}

#[test]
fn infinities_are_values_like_others() {
    let losses = [Some(1.0), Some(f64::INFINITY), Some(f64::NEG_INFINITY)];
    let checkpoints = with_losses(&losses);
    assert_eq!(kept(&best(Mode::Min, 1), &checkpoints), [3]);
    assert_eq!(kept(&best(Mode::Max, 1), &checkpoints), [2]);
    let only = with_losses(&[None, Some(f64::INFINITY)]);
    assert_eq!(kept(&best(Mode::Min, 1), &only), [2]);
}

#[test]
fn of_equal_values_the_earlier_step_wins() {
    let checkpoints = with_losses(&[Some(2.0), Some(0.0), Some(-0.0), Some(0.0)]);
    assert_eq!(kept(&best(Mode::Min, 1), &checkpoints), [2]);
    assert_eq!(kept(&best(Mode::Max, 2), &checkpoints), [1, 2]);
}

#[test]
fn every_so_many_steps() {
    let checkpoints = [0, 5, 10, 15, 20].map(|step| at(step, 0, None));
    let rule = Retention::keep_every(10).unwrap();
    assert_eq!(kept(&rule, &checkpoints), [0, 10, 20]);
}

#[test]
fn ages_count_back_from_the_newest_checkpoint() {
    let checkpoints = [at(1, 100, None), at(2, 150, None), at(3, 200, None)];
    let rule = Retention::keep_for(Duration::from_secs(50)).unwrap();
    assert_eq!(kept(&rule, &checkpoints), [2, 3]);
}

#[test]
fn a_clock_that_was_ahead_once_deletes_nothing() {
    let checkpoints = [at(1, 100, None), at(2, 9999, None), at(3, 120, None)];
    let rule = Retention::keep_for(Duration::from_secs(50)).unwrap();
    assert_eq!(kept(&rule, &checkpoints), [1, 2, 3]);
}

#[test]
fn the_last_checkpoint_stays_whatever_the_rule_says() {
    let checkpoints = [3, 7].map(|step| at(step, 0, None));
    for rule in [
        Retention::Last(0),
        Retention::Every(0),
        Retention::keep_every(10).unwrap(),
        Retention::custom("nothing", |_| BTreeSet::new()),
        Retention::custom("others", |_| BTreeSet::from([99])),
    ] {
        let decisions = rule.decide(&checkpoints);
        assert!(!decisions[0].keep && decisions[1].keep);
        let reason = "newest: never delete the last checkpoint";
        assert_eq!(decisions[1].reasons, [reason]);
    }
}

#[test]
fn reasons_name_the_rules_and_the_value() {
    let checkpoints = with_losses(&[Some(0.123), Some(0.5)]);
    let rule = Retention::Last(1) | best(Mode::Min, 2);
    let decisions = rule.decide(&checkpoints);
    assert_eq!(
        decisions[0].reasons,
        [r#"KeepBest("loss", mode="min", n=2): 0.123"#]
    );
    assert_eq!(decisions[1].reasons[0], "KeepLast(1)");
    assert_eq!(decisions[1].reasons.len(), 2);
    let rule = (Retention::Last(1) | Retention::Every(2)) & Retention::All;
    assert_eq!(rule.to_string(), "(KeepLast(1) | KeepEvery(2)) & KeepAll()");
    let decisions = rule.decide(&checkpoints);
    assert!(decisions[0].reasons.is_empty());
    assert_eq!(
        decisions[1].reasons,
        ["(KeepLast(1) | KeepEvery(2)) & KeepAll()"]
    );
}

#[test]
fn a_function_sees_the_checkpoints_in_order() {
    let rule = Retention::custom("first", |checkpoints: &[Summary]| {
        assert!(checkpoints.is_sorted_by_key(|c| c.step));
        checkpoints.iter().take(1).map(|c| c.step).collect()
    });
    let checkpoints = [9, 4, 6].map(|step| at(step, 0, None));
    let decisions = rule.decide(&checkpoints);
    assert_eq!(decisions[0].reasons, ["first"]);
    assert_eq!(kept(&rule, &checkpoints), [4]);
}

#[test]
fn nonsense_is_refused() {
    let error = Retention::keep_last(0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "KeepLast(0) would keep nothing: the number of checkpoints must be greater than 0"
    );
    assert!(Retention::keep_best("loss", Mode::Min, 0).is_err());
    assert!(Retention::keep_every(0).is_err());
    assert!(Retention::keep_for(Duration::ZERO).is_err());
}

fn losses() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        Just(None),
        Just(Some(f64::NAN)),
        Just(Some(f64::INFINITY)),
        Just(Some(f64::NEG_INFINITY)),
        (-3..3i8).prop_map(|value| Some(value.into())),
        any::<f64>().prop_map(Some),
    ]
}

prop_compose! {
    /// Distinct steps in any order, with clocks and metrics of all sorts.
    fn checkpoints()(
        seen in prop::collection::btree_map(0..60u64, (0..100u64, losses()), 0..15),
    )(
        list in Just(seen.iter().map(|(step, (seconds, loss))| at(*step, *seconds, *loss)).collect::<Vec<_>>())
            .prop_shuffle(),
    ) -> Vec<Summary> {
        list
    }
}

fn base() -> impl Strategy<Value = Retention> {
    prop_oneof![
        Just(Retention::All),
        (1..5usize).prop_map(Retention::Last),
        (any::<bool>(), 1..4usize)
            .prop_map(|(min, n)| best(if min { Mode::Min } else { Mode::Max }, n)),
        (1..9u64).prop_map(Retention::Every),
        (1..60u64).prop_map(|seconds| Retention::For(Duration::from_secs(seconds))),
    ]
}

fn any_rule() -> impl Strategy<Value = Retention> {
    base().prop_recursive(3, 8, 2, |inner| {
        (any::<bool>(), inner.clone(), inner).prop_map(|(or, a, b)| if or { a | b } else { a & b })
    })
}

/// What a rule keeps before the promise that something stays.
fn by_rule(rule: &Retention, checkpoints: &[Summary]) -> BTreeSet<u64> {
    let mut sorted = checkpoints.to_vec();
    sorted.sort_by_key(|c| c.step);
    rule.kept(&sorted).into_keys().collect()
}

proptest! {
    #[test]
    fn or_is_the_union_and_and_the_intersection(
        (a, b, list) in (any_rule(), any_rule(), checkpoints())
    ) {
        let (of_a, of_b) = (by_rule(&a, &list), by_rule(&b, &list));
        prop_assert_eq!(by_rule(&(a.clone() | b.clone()), &list), &of_a | &of_b);
        prop_assert_eq!(by_rule(&(a & b), &list), &of_a & &of_b);
    }

    #[test]
    fn the_order_of_the_checkpoints_plays_no_part((rule, list) in (any_rule(), checkpoints())) {
        let mut sorted = list.clone();
        sorted.sort_by_key(|c| c.step);
        prop_assert_eq!(rule.decide(&list), rule.decide(&sorted));
        sorted.reverse();
        prop_assert_eq!(rule.decide(&list), rule.decide(&sorted));
    }

    #[test]
    fn deciding_again_on_what_was_kept_keeps_it((rule, list) in (base(), checkpoints())) {
        let first = kept(&rule, &list);
        let rest: Vec<Summary> = list.into_iter().filter(|c| first.contains(&c.step)).collect();
        prop_assert_eq!(kept(&rule, &rest), first);
    }

    #[test]
    fn something_always_stays_and_everything_is_decided_on((rule, list) in (any_rule(), checkpoints())) {
        let decisions = rule.decide(&list);
        prop_assert_eq!(decisions.len(), list.len());
        prop_assert!(decisions.is_sorted_by(|a, b| a.step < b.step));
        prop_assert_eq!(decisions.iter().any(|d| d.keep), !list.is_empty());
        prop_assert!(decisions.iter().all(|d| d.keep != d.reasons.is_empty()));
    }
}
