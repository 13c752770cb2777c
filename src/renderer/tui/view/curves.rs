//! The points of a plot: few enough for the columns that there are.

use std::collections::VecDeque;

use super::axis::{self, FARTHEST, Range};
use crate::renderer::event::{Goal, Split};
use crate::renderer::history::{Bucket, History};
use crate::renderer::run_state::NumericMetric;

/// Values of one split at their steps, oldest first. NaN is a gap.
pub(super) struct Curve {
    pub(super) split: Split,
    pub(super) points: Vec<(f64, f64)>,
}

/// The best value of a metric, and where it was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Best {
    pub(super) split: Split,
    pub(super) step: u64,
    pub(super) value: f64,
}

/// The whole history in at most `most` points a split, each the mean of its neighbours.
pub(super) fn whole(metric: &NumericMetric, most: usize) -> Vec<Curve> {
    let curves = metric.series.iter().map(|(split, history)| {
        let buckets = history.all();
        let together = buckets.len().div_ceil(most.max(1)).max(1);
        Curve {
            split: *split,
            points: buckets.chunks(together).map(mean).collect(),
        }
    });
    curves.collect()
}

/// Where some neighbours lie together.
fn mean(buckets: &[Bucket]) -> (f64, f64) {
    let (Some(first), Some(last)) = (buckets.first(), buckets.last()) else {
        return (0.0, f64::NAN);
    };
    let count: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    let parts = buckets
        .iter()
        .map(|bucket| bucket.mean * (bucket.count as f64 / count as f64));
    let step = f64::midpoint(first.first as f64, last.last as f64);
    (step, drawable(parts.sum()))
}

/// The last values one by one, at most `most` a split, from where all splits have some.
pub(super) fn recent(metric: &NumericMetric, most: usize) -> Vec<Curve> {
    let curves = metric.series.iter().map(|(split, history)| Curve {
        split: *split,
        points: last(history.recent(), most),
    });
    let mut curves: Vec<Curve> = curves.collect();
    // A split that is measured once an epoch reaches back much farther than one that is measured at every step.
    let several = curves.iter().filter(|curve| curve.points.len() > 1);
    let start = several.map(|curve| curve.points[0].0).fold(0.0, f64::max);
    for curve in &mut curves {
        curve.points.retain(|(step, _)| *step >= start);
    }
    curves
}

fn last(values: &VecDeque<(u64, f64)>, most: usize) -> Vec<(f64, f64)> {
    let older = values.len().saturating_sub(most);
    let points = values
        .range(older..)
        .map(|(step, value)| (*step as f64, drawable(*value)));
    points.collect()
}

/// What is not finite is a gap, and what is out of all proportion is drawn at its edge.
fn drawable(value: f64) -> f64 {
    if value.is_finite() {
        value.clamp(-FARTHEST, FARTHEST)
    } else {
        f64::NAN
    }
}

/// The ranges in which all curves and the best value lie; `None` if there is nothing to draw. A best value that was
/// measured earlier does not count.
pub(super) fn ranges(curves: &[Curve], best: Option<Best>) -> Option<(Range, Range)> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let x = extent(points().map(|(step, _)| *step))?;
    let best = best.filter(|best| (x[0]..=x[1]).contains(&(best.step as f64)));
    let values = points()
        .map(|(_, value)| *value)
        .filter(|value| !value.is_nan());
    let y = extent(values.chain(best.map(|best| drawable(best.value))))?;
    let [first, last] = x;
    // There is nothing between two steps, and nothing before the first one.
    let x = if last - first < 1.0 {
        [(first - 1.0).max(0.0), last + 1.0]
    } else {
        x
    };
    Some((x, axis::range(y[0], y[1])))
}

/// The smallest and the largest of some values.
fn extent(values: impl Iterator<Item = f64>) -> Option<Range> {
    let wider = |extent: Option<Range>, value: f64| match extent {
        Some([low, high]) => Some([low.min(value), high.max(value)]),
        None => Some([value, value]),
    };
    values.fold(None, wider)
}

/// The best value of a metric that has a goal: what is looked at while training counts before what is learnt from.
pub(super) fn best(metric: &NumericMetric) -> Option<Best> {
    let goal = metric.metric.goal?;
    let of = |wanted: Split| {
        let (split, history) = metric.series.iter().find(|(split, _)| *split == wanted)?;
        let (step, value) = best_of(history, goal)?;
        Some(Best {
            split: *split,
            step,
            value,
        })
    };
    of(Split::Valid)
        .or_else(|| of(Split::Test))
        .or_else(|| of(Split::Train))
}

/// The best value on one split, and its step.
pub(super) fn best_of(history: &History, goal: Goal) -> Option<(u64, f64)> {
    match goal {
        Goal::Min => history.min(),
        Goal::Max => history.max(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::renderer::event::{Event, Metric};
    use crate::renderer::run_state::RunState;

    fn metric(values: &[(Split, u64, f64)], goal: Option<Goal>) -> NumericMetric {
        let mut run = RunState::default();
        let metric = Metric {
            goal,
            ..Metric::new("loss")
        };
        run.apply(0.0, Event::Register(metric));
        for &(split, step, value) in values {
            let name = "loss".to_owned();
            run.apply(
                0.0,
                Event::Numeric {
                    split,
                    name,
                    value,
                    step,
                },
            );
        }
        run.numeric.remove(0)
    }

    #[test]
    fn many_values_become_few_points_that_keep_their_mean() {
        let values: Vec<_> = (1..=10_000)
            .map(|step| (Split::Train, step, step as f64))
            .collect();
        let curves = whole(&metric(&values, None), 100);
        let points = &curves[0].points;
        assert!((50..=100).contains(&points.len()), "{}", points.len());
        for (step, value) in points {
            // The mean of neighbouring steps is the middle of them.
            assert!((step - value).abs() < 1.0, "{value} at {step}");
        }
    }

    #[test]
    fn recent_values_begin_where_all_splits_have_some() {
        let mut values: Vec<_> = (1..=10)
            .map(|epoch| (Split::Valid, epoch * 100, 1.0))
            .collect();
        values.extend((1..=1000).map(|step| (Split::Train, step, 2.0)));
        let curves = recent(&metric(&values, None), 150);
        let steps = |curve: &Curve| {
            curve
                .points
                .iter()
                .map(|(step, _)| *step as u64)
                .collect::<Vec<_>>()
        };
        assert_eq!(steps(&curves[0]), (851..=1000).collect::<Vec<_>>());
        assert_eq!(steps(&curves[1]), [900, 1000]);
    }

    #[test]
    fn a_single_value_does_not_hide_the_others() {
        let mut values = vec![(Split::Test, 5, 1.0)];
        values.extend((1..=4).map(|step| (Split::Train, step, 2.0)));
        let curves = recent(&metric(&values, None), 100);
        assert_eq!(curves[0].points.len(), 4);
        assert_eq!(curves[1].points, [(5.0, 1.0)]);
    }

    #[test]
    fn what_is_not_finite_is_a_gap_and_has_no_range() {
        let nan = metric(
            &[
                (Split::Train, 1, f64::NAN),
                (Split::Train, 2, f64::INFINITY),
            ],
            None,
        );
        let curves = recent(&nan, 9);
        assert!(curves[0].points.iter().all(|(_, value)| value.is_nan()));
        assert_eq!(ranges(&curves, None), None);
        assert_eq!(ranges(&whole(&nan, 9), None), None);
        let huge = metric(
            &[(Split::Train, 1, f64::MAX), (Split::Train, 2, -f64::MAX)],
            None,
        );
        let (_, y) = ranges(&recent(&huge, 9), None).unwrap();
        let expected = [-FARTHEST, FARTHEST];
        assert_eq!(y.map(f64::to_bits), expected.map(f64::to_bits));
    }

    #[test]
    fn the_best_value_is_that_of_the_goal_and_of_validation_if_there_is_one() {
        let values = [
            (Split::Train, 1, 0.5),
            (Split::Train, 2, 0.1),
            (Split::Valid, 1, f64::NAN),
        ];
        let best_of = |values: &[(Split, u64, f64)], goal| best(&metric(values, goal));
        assert_eq!(best_of(&values, None), None);
        let train = best_of(&values, Some(Goal::Min)).unwrap();
        assert_eq!(
            (train.split, train.step, train.value),
            (Split::Train, 2, 0.1)
        );
        let values = [
            (Split::Train, 2, 0.1),
            (Split::Valid, 1, 0.4),
            (Split::Valid, 2, 0.3),
        ];
        let valid = best_of(&values, Some(Goal::Max)).unwrap();
        assert_eq!(
            (valid.split, valid.step, valid.value),
            (Split::Valid, 1, 0.4)
        );
    }
}
