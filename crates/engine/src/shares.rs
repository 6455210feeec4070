//! How requests share a model: whose turn it is, and what each of them weighs.
//!
//! A tenant is a name that a request brings; the batcher knows it by a small number. Names with a
//! weight have numbers of their own. All others are spread over what is left of the table, so that
//! what clients make up costs no memory; two that meet there share a turn. Nothing is remembered.

use jitney_batcher::{Config, Measure};
pub use jitney_settings::Cost;

use crate::call::Claim;

/// Numbers that the batcher keeps apart; 0 is for requests that name no tenant.
const NUMBERS: u32 = 64;

/// The most tenants that may have a weight, so that enough numbers are left for all others.
pub const TENANTS_MAX: usize = 31;

/// Who goes first when not all fit, and how much fits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares {
    /// Tenants whose weight is told; all others have 1. At most [`TENANTS_MAX`].
    pub tenants: Vec<(String, u32)>,
    /// What an item weighs.
    pub cost: Cost,
    /// Most cost in a batch.
    pub cost_max: Option<u64>,
    /// What an item of the warm-up sample costs, where that is given.
    pub sample_cost: Option<u64>,
}

/// What the batcher is told about one request's share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    pub(crate) tenant: u32,
    /// Of all its items.
    pub(crate) cost: u64,
}

impl Shares {
    /// With other weights of tenants. Those who have one already keep their place, so that their
    /// requests that wait are still known as theirs.
    ///
    /// # Errors
    /// A sentence, if there are too many or one weighs nothing.
    pub(crate) fn weighing(&self, tenants: &[(String, u32)]) -> Result<Self, String> {
        let before = |name: &String| self.tenants.iter().position(|(it, _)| it == name);
        let mut ordered: Vec<(String, u32)> = Vec::with_capacity(tenants.len());
        for (name, weight) in tenants {
            match ordered.iter_mut().find(|(it, _)| it == name) {
                Some(same) => same.1 = *weight,
                None => ordered.push((name.clone(), *weight)),
            }
        }
        ordered.sort_by_key(|(name, _)| before(name).unwrap_or(usize::MAX));
        if ordered.len() > TENANTS_MAX || ordered.iter().any(|(_, weight)| *weight == 0) {
            return Err(format!(
                "at most {TENANTS_MAX} tenants may have a weight, each a whole number above zero"
            ));
        }
        Ok(Self { tenants: ordered, ..self.clone() })
    }

    /// What one item of a sample weighs that has so many bytes or this length, if that is known.
    pub(crate) fn of_sample(&self, bytes: Option<u64>, length: Option<u64>) -> Option<u64> {
        match self.cost {
            Cost::Items => Some(1),
            Cost::Bytes => self.sample_cost.or(bytes),
            Cost::Tokens => self.sample_cost,
            Cost::Length => self.sample_cost.or(length),
        }
    }

    /// The weight of a request with so many items and so many bytes in its values. A length that was
    /// seen counts before one that is claimed.
    pub(crate) fn weigh(
        &self,
        claim: &Claim,
        length: Option<u64>,
        items: u32,
        bytes: u64,
    ) -> Weight {
        let items = u64::from(items);
        let cost = match self.cost {
            Cost::Items => items,
            Cost::Bytes => bytes.max(1),
            Cost::Tokens => claim.cost.unwrap_or(items),
            Cost::Length => length.or(claim.cost).unwrap_or(1).saturating_mul(items),
        };
        Weight { tenant: claim.tenant.as_deref().map_or(0, |name| self.number(name)), cost }
    }

    /// The cost of a request that shares its batch with no other: one that fills it. Lengths say nothing of that.
    pub(crate) fn filling(&self, cost: u64) -> u64 {
        match self.cost {
            Cost::Items => self.cost_max.unwrap_or(u64::MAX),
            Cost::Bytes | Cost::Tokens => self.cost_max.unwrap_or(cost),
            Cost::Length => cost,
        }
    }

    fn number(&self, name: &str) -> u32 {
        let known = self.tenants.iter().take(TENANTS_MAX).position(|(tenant, _)| tenant == name);
        let first = 1 + self.tenants.len().min(TENANTS_MAX) as u32;
        known.map_or_else(|| first + hash(name) % (NUMBERS - first), |place| place as u32 + 1)
    }

    /// Tells the batcher.
    pub(crate) fn apply(&self, config: Config) -> Config {
        let weights = self.tenants.iter().take(TENANTS_MAX).enumerate();
        let measure = match self.cost {
            Cost::Items => Measure::Items,
            Cost::Bytes | Cost::Tokens => Measure::Packed,
            Cost::Length => Measure::Padded,
        };
        Config {
            max_cost: self.cost_max.unwrap_or(u64::MAX),
            measure,
            tenant_weights: weights.map(|(place, (_, it))| (place as u32 + 1, *it)).collect(),
            ..config
        }
    }
}

/// FNV-1a, whose low bits are good enough for a small table.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(tenant: Option<&str>, cost: Option<u64>) -> Claim {
        Claim { tenant: tenant.map(Into::into), cost, items: None }
    }

    fn shares(cost: Cost) -> Shares {
        let tenants = vec![("gold".to_owned(), 4), ("silver".to_owned(), 2)];
        Shares { tenants, cost, cost_max: Some(100), sample_cost: None }
    }

    #[test]
    fn tenants_with_a_weight_have_numbers_of_their_own() {
        let number =
            |name: Option<&str>| shares(Cost::Items).weigh(&claim(name, None), None, 1, 1).tenant;
        assert_eq!([number(None), number(Some("gold")), number(Some("silver"))], [0, 1, 2]);
        let strangers = (0..1000).map(|it| number(Some(&format!("stranger-{it}"))));
        let strangers: std::collections::BTreeSet<_> = strangers.collect();
        assert_eq!((strangers.first(), strangers.last()), (Some(&3), Some(&63)));
        assert_eq!(number(Some("a")), number(Some("a")));
    }

    #[test]
    fn who_has_a_weight_keeps_its_number_when_weights_change() {
        let pairs = [("new", 1), ("silver", 5), ("gold", 9), ("silver", 6)];
        let pairs = pairs.map(|(name, weight)| (name.to_owned(), weight));
        let changed = shares(Cost::Bytes).weighing(&pairs).unwrap();
        let names: Vec<_> =
            changed.tenants.iter().map(|(name, weight)| (&**name, *weight)).collect();
        assert_eq!(names, [("gold", 9), ("silver", 6), ("new", 1)]);
        assert_eq!((changed.cost, changed.cost_max), (Cost::Bytes, Some(100)));
        let many: Vec<_> = (0..32).map(|it| (it.to_string(), 1)).collect();
        assert!(changed.weighing(&many).is_err() && changed.weighing(&many[1..]).is_ok());
        assert!(changed.weighing(&[("gold".to_owned(), 0)]).is_err());
        assert_eq!(changed.weighing(&[]).unwrap().tenants, []);
    }

    #[test]
    fn a_sample_weighs_what_can_be_known_of_it() {
        let weigh =
            |cost, sample_cost| Shares { sample_cost, ..shares(cost) }.of_sample(Some(50), None);
        assert_eq!([weigh(Cost::Items, Some(9)), weigh(Cost::Bytes, None)], [Some(1), Some(50)]);
        assert_eq!([weigh(Cost::Tokens, None), weigh(Cost::Length, Some(9))], [None, Some(9)]);
        assert_eq!(shares(Cost::Bytes).of_sample(None, Some(8)), None);
        assert_eq!(shares(Cost::Length).of_sample(None, Some(8)), Some(8));
    }

    #[test]
    fn a_request_weighs_its_items_its_bytes_or_what_it_says() {
        let weigh = |cost, said| shares(cost).weigh(&claim(None, said), None, 3, 500).cost;
        let seen = shares(Cost::Length).weigh(&claim(None, Some(9)), Some(7), 3, 500).cost;
        assert_eq!(seen, 21);
        assert_eq!([weigh(Cost::Items, Some(9)), weigh(Cost::Bytes, Some(9))], [3, 500]);
        assert_eq!([weigh(Cost::Tokens, Some(9)), weigh(Cost::Tokens, None)], [9, 3]);
        assert_eq!([weigh(Cost::Length, Some(9)), weigh(Cost::Length, None)], [27, 3]);
    }

    #[test]
    fn the_batcher_hears_of_weights_and_limits() {
        let config = shares(Cost::Length).apply(Config::default());
        assert_eq!(config.tenant_weights, [(1, 4), (2, 2)]);
        assert_eq!((config.max_cost, config.measure), (100, Measure::Padded));
        assert_eq!(Shares::default().apply(Config::default()), Config::default());
    }
}
