/// What a power cut leaves of the changes that were not synced, numbered from the oldest.
///
/// A disk may do any of them and leave out any other: it promises no order but that of the syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All got to the disk in time.
    Everything,
    /// None did.
    Nothing,
    /// One alone did.
    Only(usize),
    /// One alone did not.
    AllBut(usize),
    /// All did, but of one write only some sectors.
    Torn(usize),
    /// Each by chance did, did not, or did in some of its sectors; the number is the seed.
    Random(u64),
}

/// What becomes of one change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Kept,
    Lost,
    /// Each sector has its own fate.
    Torn,
}

impl Outcome {
    /// All that are worth a try with so many changes, of which some may tear; none is named twice.
    pub(super) fn of(may_tear: &[bool], random: usize, seed: u64) -> Vec<Outcome> {
        let changes = 0..may_tear.len();
        let mut outcomes = vec![Outcome::Everything];
        if !changes.is_empty() {
            outcomes.push(Outcome::Nothing);
        }
        if changes.len() > 1 {
            outcomes.extend(changes.clone().map(Outcome::Only));
        }
        if changes.len() > 2 {
            outcomes.extend(changes.clone().map(Outcome::AllBut));
            let seeds = (0..random as u64).map(|n| seed.wrapping_add(n));
            outcomes.extend(seeds.map(Outcome::Random));
        }
        outcomes.extend(changes.filter(|&n| may_tear[n]).map(Outcome::Torn));
        outcomes
    }

    pub(super) fn fate(self, number: usize, chance: &mut Chance) -> Fate {
        let kept = |kept| if kept { Fate::Kept } else { Fate::Lost };
        match self {
            Outcome::Nothing => Fate::Lost,
            Outcome::Only(one) => kept(number == one),
            Outcome::AllBut(one) => kept(number != one),
            Outcome::Torn(one) if number == one => Fate::Torn,
            Outcome::Everything | Outcome::Torn(_) => Fate::Kept,
            Outcome::Random(_) => match chance.next() % 5 {
                0 | 1 => Fate::Kept,
                2 | 3 => Fate::Lost,
                _ => Fate::Torn,
            },
        }
    }

    pub(super) fn chance(self) -> Chance {
        match self {
            Outcome::Random(seed) => Chance(seed),
            _ => Chance(0),
        }
    }
}

/// Numbers that look random and follow from a seed: `SplitMix64`.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}
