//! The values of one metric, in bounded memory: all of them at reduced resolution, the last ones in full.

use std::collections::VecDeque;

/// So many of the last values are kept one by one.
pub(crate) const RECENT: usize = 256;
/// The whole history is kept in at most so many buckets.
pub(crate) const BUCKETS: usize = 1024;

/// The values of one metric on one split, in the order in which they were measured. Neighbours that were measured at the
/// same step, as those of the batches of a validation, are one value: their mean.
#[derive(Debug)]
pub(crate) struct History {
    /// Neighbours are merged when there is no room for another one. All but the last hold `width` values.
    buckets: Vec<Bucket>,
    width: u64,
    recent: VecDeque<(u64, f64)>,
    /// How many were measured for the last value, which is finite, and the last bucket without it. `None` if there is
    /// none to which another one could be added.
    last: Option<(u64, Option<Bucket>)>,
    /// Values that are not finite. Those that [`forget_after`](Self::forget_after) meets among the recent ones
    /// only are taken off again.
    not_finite: u64,
}

/// Some neighbouring values, taken together. Values that are not finite are in none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bucket {
    /// Steps of its first and its last value.
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) mean: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Steps at which the smallest and the largest value were measured first.
    pub(crate) min_at: u64,
    pub(crate) max_at: u64,
    /// Values in it; at least one.
    pub(crate) count: u64,
}

impl Default for History {
    fn default() -> History {
        History {
            buckets: Vec::new(),
            width: 1,
            recent: VecDeque::new(),
            last: None,
            not_finite: 0,
        }
    }
}

impl History {
    pub(crate) fn push(&mut self, step: u64, value: f64) {
        if value.is_finite() && self.add_to_last(step, value) {
            return;
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((step, value));
        if value.is_finite() {
            let before = self.put(Bucket::of(step, value));
            self.last = Some((1, before));
        } else {
            self.last = None;
            self.not_finite += 1;
        }
    }

    /// Makes the last value the mean of what was measured at its step, and says whether this was.
    fn add_to_last(&mut self, step: u64, value: f64) -> bool {
        let Some((weight, before)) = &mut self.last else {
            return false;
        };
        let (Some((at, mean)), Some(bucket)) = (self.recent.back_mut(), self.buckets.last_mut())
        else {
            return false;
        };
        if *at != step {
            return false;
        }
        *weight += 1;
        let share = 1.0 / *weight as f64;
        // So that the sum of two large ones does not overflow.
        *mean = *mean * (1.0 - share) + value * share;
        let point = Bucket::of(step, *mean);
        *bucket = before.map_or(point, |before| before.and(&point));
        true
    }

    /// Forgets the values of later steps, and with them those earlier ones that share a bucket with a later one and
    /// are not among the recent.
    pub(crate) fn forget_after(&mut self, step: u64) {
        self.last = None;
        let is_later = |bucket: &Bucket| bucket.last > step;
        let first_cut = self.buckets.iter().position(is_later);
        self.buckets
            .truncate(first_cut.unwrap_or(self.buckets.len()));
        let before = self.buckets.last().map(|bucket| bucket.last);
        let gone = self.recent.iter().filter(|(at, _)| *at > step);
        self.not_finite -= gone.filter(|(_, value)| !value.is_finite()).count() as u64;
        self.recent.retain(|(at, _)| *at <= step);
        if first_cut.is_none() {
            return;
        }
        let has_no_bucket = |at: u64| before.is_none_or(|before| at > before);
        let homeless: Vec<(u64, f64)> = self.recent.iter().copied().collect();
        for (at, value) in homeless {
            if value.is_finite() && has_no_bucket(at) {
                self.put(Bucket::of(at, value));
            }
        }
    }

    /// Returns the bucket that it was added to, as it was before; `None` if it has one of its own.
    fn put(&mut self, value: Bucket) -> Option<Bucket> {
        if let Some(last) = self.buckets.last_mut()
            && last.count < self.width
        {
            let before = *last;
            *last = last.and(&value);
            return Some(before);
        }
        if self.buckets.len() == BUCKETS {
            self.halve();
        }
        self.buckets.push(value);
        None
    }

    /// Merges each two neighbours.
    fn halve(&mut self) {
        for pair in 0..BUCKETS / 2 {
            self.buckets[pair] = self.buckets[2 * pair].and(&self.buckets[2 * pair + 1]);
        }
        self.buckets.truncate(BUCKETS / 2);
        self.width *= 2;
    }

    /// The whole of it, oldest first.
    #[cfg_attr(
        not(any(feature = "tui", test)),
        expect(dead_code, reason = "only the screen shows it")
    )]
    pub(crate) fn all(&self) -> &[Bucket] {
        &self.buckets
    }

    /// The last values, oldest first, those that are not finite too.
    #[cfg_attr(
        not(any(feature = "tui", test)),
        expect(dead_code, reason = "only the screen shows it")
    )]
    pub(crate) fn recent(&self) -> &VecDeque<(u64, f64)> {
        &self.recent
    }

    /// The last value, whatever it is; or what comes next to it, if the last ones were forgotten.
    pub(crate) fn last(&self) -> Option<(u64, f64)> {
        let of = |bucket: &Bucket| (bucket.last, bucket.mean);
        let recent = self.recent.back().copied();
        recent.or_else(|| self.buckets.last().map(of))
    }

    /// The smallest finite value, and where it was.
    pub(crate) fn min(&self) -> Option<(u64, f64)> {
        let lesser = |a: &Bucket, b: &Bucket| b.min < a.min;
        self.first_of(lesser)
            .map(|bucket| (bucket.min_at, bucket.min))
    }

    /// The largest finite value, and where it was.
    pub(crate) fn max(&self) -> Option<(u64, f64)> {
        let greater = |a: &Bucket, b: &Bucket| b.max > a.max;
        self.first_of(greater)
            .map(|bucket| (bucket.max_at, bucket.max))
    }

    /// The bucket that no other one beats; of equal ones the first.
    fn first_of(&self, is_beaten_by: impl Fn(&Bucket, &Bucket) -> bool) -> Option<&Bucket> {
        let buckets = self.buckets.iter();
        buckets.reduce(|a, b| if is_beaten_by(a, b) { b } else { a })
    }

    /// Values in all, and how many of them are not finite.
    #[cfg_attr(
        not(any(feature = "tui", test)),
        expect(dead_code, reason = "only the screen shows it")
    )]
    pub(crate) fn count(&self) -> (u64, u64) {
        let finite: u64 = self.buckets.iter().map(|bucket| bucket.count).sum();
        (finite + self.not_finite, self.not_finite)
    }
}

impl Bucket {
    fn of(step: u64, value: f64) -> Bucket {
        Bucket {
            first: step,
            last: step,
            mean: value,
            min: value,
            max: value,
            min_at: step,
            max_at: step,
            count: 1,
        }
    }

    /// Both, of which `next` is the later one.
    fn and(&self, next: &Bucket) -> Bucket {
        let (min, min_at) = if next.min < self.min {
            (next.min, next.min_at)
        } else {
            (self.min, self.min_at)
        };
        let (max, max_at) = if next.max > self.max {
            (next.max, next.max_at)
        } else {
            (self.max, self.max_at)
        };
        let count = self.count + next.count;
        let share = |bucket: &Bucket| bucket.mean * (bucket.count as f64 / count as f64);
        Bucket {
            first: self.first,
            last: next.last,
            // Rounding must not carry it out of what was measured.
            mean: (share(self) + share(next)).clamp(min, max),
            min,
            max,
            min_at,
            max_at,
            count,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn history(values: &[(u64, f64)]) -> History {
        let mut history = History::default();
        for &(step, value) in values {
            history.push(step, value);
        }
        history
    }

    /// Values of ascending steps, finite or not, each measured at a step of its own.
    fn series(most: usize) -> impl Strategy<Value = Vec<(u64, f64)>> {
        let value = prop_oneof![
            8 => -1e3..1e3,
            1 => proptest::num::f64::ANY,
            1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY]),
        ];
        prop::collection::vec((1u64..3, value), 0..most).prop_map(|steps| {
            let add = |at: &mut u64, (further, value): (u64, f64)| {
                *at += further;
                Some((*at, value))
            };
            steps.into_iter().scan(0, add).collect()
        })
    }

    /// The first of the best, the plain way.
    fn best(values: &[(u64, f64)], better: fn(f64, f64) -> bool) -> Option<(u64, f64)> {
        let finite = values
            .iter()
            .copied()
            .filter(|(_, value)| value.is_finite());
        finite.reduce(|best, next| if better(next.1, best.1) { next } else { best })
    }

    fn last_values(values: &[(u64, f64)]) -> &[(u64, f64)] {
        &values[values.len().saturating_sub(RECENT)..]
    }

    fn bits(values: impl IntoIterator<Item = (u64, f64)>) -> Vec<(u64, u64)> {
        let bits = |(step, value): (u64, f64)| (step, value.to_bits());
        values.into_iter().map(bits).collect()
    }

    /// Each bucket tells of the very next values, as many as it counts; together they tell of all.
    fn check_buckets(history: &History, values: &[(u64, f64)]) {
        let finite: Vec<(u64, f64)> = values
            .iter()
            .copied()
            .filter(|(_, v)| v.is_finite())
            .collect();
        let mut rest = finite.as_slice();
        for bucket in history.all() {
            let (own, others) = rest.split_at(bucket.count as usize);
            rest = others;
            assert_eq!(
                (bucket.first, bucket.last),
                (own[0].0, own[own.len() - 1].0)
            );
            assert_eq!(Some((bucket.min_at, bucket.min)), best(own, |a, b| a < b));
            assert_eq!(Some((bucket.max_at, bucket.max)), best(own, |a, b| a > b));
            let mean = own.iter().map(|(_, v)| v / own.len() as f64).sum::<f64>();
            let scale = bucket.min.abs().max(bucket.max.abs());
            assert!(
                (bucket.mean - mean).abs() <= scale * 1e-9 + f64::MIN_POSITIVE,
                "{bucket:?} {mean}"
            );
            assert!(bucket.min <= bucket.mean && bucket.mean <= bucket.max);
        }
        assert!(rest.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn it_tells_what_a_list_of_all_values_would(values in series(4000)) {
            let history = history(&values);
            check_buckets(&history, &values);
            let odd = values.iter().filter(|(_, value)| !value.is_finite()).count() as u64;
            prop_assert_eq!(history.count(), (values.len() as u64, odd));
            prop_assert_eq!(history.min(), best(&values, |a, b| a < b));
            prop_assert_eq!(history.max(), best(&values, |a, b| a > b));
            prop_assert_eq!(bits(history.last()), bits(values.last().copied()));
            let recent = history.recent().iter().copied();
            prop_assert_eq!(bits(recent), bits(last_values(&values).iter().copied()));
        }

        #[test]
        fn what_is_measured_at_one_step_is_one_value(
            values in prop::collection::vec((1u64..3, prop::collection::vec(-1e3..1e3, 1..5)), 0..3000)
        ) {
            let mut at = 0;
            let (mut all, mut means) = (History::default(), Vec::new());
            for (further, values) in &values {
                at += further;
                for value in values {
                    all.push(at, *value);
                }
                means.push((at, values.iter().sum::<f64>() / values.len() as f64));
            }
            let expected = history(&means);
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9;
            prop_assert_eq!(all.count(), expected.count());
            prop_assert_eq!(all.all().len(), expected.all().len());
            for (bucket, expected) in all.all().iter().zip(expected.all()) {
                prop_assert_eq!((bucket.first, bucket.last), (expected.first, expected.last));
                prop_assert!(near(bucket.mean, expected.mean), "{bucket:?} {expected:?}");
                prop_assert!(near(bucket.min, expected.min) && near(bucket.max, expected.max));
            }
            for ((at, value), (step, mean)) in all.recent().iter().zip(last_values(&means)) {
                prop_assert!(at == step && near(*value, *mean));
            }
        }

        #[test]
        fn after_a_cut_nothing_is_left_of_later_steps(values in series(4000), at in 0u64..5000) {
            let mut history = history(&values);
            let width = history.width;
            history.forget_after(at);
            let kept: Vec<(u64, f64)> = values.iter().copied().filter(|(step, _)| *step <= at).collect();
            prop_assert!(history.all().iter().all(|bucket| bucket.last <= at));
            // What shared a bucket with a later value may be missing too, and no more than that.
            let finite = kept.iter().filter(|(_, value)| value.is_finite()).count() as u64;
            let (count, odd) = history.count();
            prop_assert!(count - odd <= finite && finite < count - odd + width);
            let recent = last_values(&values).iter().copied().filter(|(step, _)| *step <= at);
            prop_assert_eq!(bits(history.recent().iter().copied()), bits(recent));
        }

        #[test]
        fn a_cut_behind_the_last_step_changes_nothing(values in series(2000)) {
            let mut cut = history(&values);
            cut.forget_after(u64::MAX);
            check_buckets(&cut, &values);
            prop_assert_eq!(cut.count(), history(&values).count());
        }

        #[test]
        fn a_cut_among_the_recent_values_loses_none_of_the_others(count in 1500u64..6000, back in 1u64..240) {
            let values: Vec<(u64, f64)> = (0..count).map(|step| (step, (step % 7) as f64)).collect();
            let mut history = history(&values);
            history.forget_after(count - 1 - back);
            let kept = &values[..(count - back) as usize];
            check_buckets(&history, kept);
            prop_assert_eq!(history.last(), kept.last().copied());
        }
    }

    #[test]
    fn a_million_values_take_no_more_room_than_a_few_thousand() {
        let mut history = History::default();
        for step in 0..1_000_000 {
            history.push(step, step as f64);
            assert!(history.all().len() <= BUCKETS && history.recent().len() <= RECENT);
        }
        assert!(history.all().len() > BUCKETS / 2 - 1);
        assert!(history.buckets.capacity() <= 2 * BUCKETS);
        assert!(history.recent.capacity() <= 2 * RECENT);
        assert_eq!(history.count(), (1_000_000, 0));
        assert_eq!(history.min(), Some((0, 0.0)));
        assert_eq!(history.max(), Some((999_999, 999_999.0)));
    }

    #[test]
    fn a_value_that_is_not_finite_is_neither_the_best_nor_forgotten() {
        let history = history(&[(1, f64::NAN), (2, 3.0), (3, f64::NEG_INFINITY)]);
        assert_eq!(
            (history.min(), history.max()),
            (Some((2, 3.0)), Some((2, 3.0)))
        );
        assert_eq!(history.count(), (3, 2));
        assert_eq!(history.last(), Some((3, f64::NEG_INFINITY)));
        assert!(history.recent()[0].1.is_nan());
    }

    #[test]
    fn a_history_without_finite_values_has_no_best() {
        let history = history(&[(1, f64::NAN), (2, f64::INFINITY)]);
        assert_eq!(
            (history.min(), history.max(), history.all()),
            (None, None, &[][..])
        );
    }

    #[test]
    fn values_too_large_to_be_added_have_a_mean() {
        let history = {
            let values: Vec<(u64, f64)> = (0..3000).map(|step| (step, f64::MAX)).collect();
            history(&values)
        };
        assert!(
            history
                .all()
                .iter()
                .all(|bucket| (bucket.mean - f64::MAX).abs() < f64::EPSILON)
        );
    }

    #[test]
    fn what_is_measured_after_a_cut_follows_what_was_before() {
        let values: Vec<(u64, f64)> = (0..5000).map(|step| (step, 1.0)).collect();
        let mut history = history(&values);
        history.forget_after(1000);
        assert_eq!(history.last().map(|(_, value)| value), Some(1.0));
        history.push(1001, 2.0);
        assert_eq!(history.last(), Some((1001, 2.0)));
        assert_eq!(history.max(), Some((1001, 2.0)));
        assert!(
            history
                .all()
                .windows(2)
                .all(|pair| pair[0].last <= pair[1].first)
        );
    }
}
