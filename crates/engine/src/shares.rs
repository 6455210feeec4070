//! How requests share a model: whose turn it is, and what each of them weighs.
//!
//! A tenant is a name that a request brings; the batcher knows it by a small number. Names with a
//! weight have numbers of their own. All others are spread over what is left of the table, so that
//! what clients make up costs no memory; two that meet there share a turn. Nothing is remembered.

use jitney_batcher::{Config, Measure};

use crate::call::Claim;

/// Numbers that the batcher keeps apart; 0 is for requests that name no tenant.
const NUMBERS: u32 = 64;

/// The most tenants that may have a weight, so that enough numbers are left for all others.
pub const TENANTS_MAX: usize = 31;

/// What an item weighs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cost {
    /// All weigh the same.
    #[default]
    Items,
    /// The bytes of its values; a batch takes as long as all of them together.
    Bytes,
    /// What the request says (tokens, pixels); a batch takes as long as all of them together.
    Tokens,
    /// The length that the request says; a batch takes as long as if all had the longest.
    Length,
}

impl Cost {
    /// The words users type.
    pub const WORDS: [(&str, Self); 4] = [
        ("items", Self::Items),
        ("bytes", Self::Bytes),
        ("tokens", Self::Tokens),
        ("length", Self::Length),
    ];

    /// The word users type.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Items => "items",
            Self::Bytes => "bytes",
            Self::Tokens => "tokens",
            Self::Length => "length",
        }
    }
}

impl std::str::FromStr for Cost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::WORDS.into_iter().find(|(word, _)| *word == text);
        known
            .map(|(_, cost)| cost)
            .ok_or_else(|| format!("unknown cost {text:?}; known: items, bytes, tokens, length"))
    }
}

/// Who goes first when not all fit, and how much fits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares {
    /// Tenants whose weight is told; all others have 1. At most [`TENANTS_MAX`].
    pub tenants: Vec<(String, u32)>,
    /// What an item weighs.
    pub cost: Cost,
    /// Most cost in a batch.
    pub cost_max: Option<u64>,
}

/// What the batcher is told about one request's share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    pub(crate) tenant: u32,
    /// Of all its items.
    pub(crate) cost: u64,
}

impl Shares {
    /// The weight of a request with so many items and so many bytes in its values.
    pub(crate) fn weigh(&self, claim: &Claim, items: u32, bytes: u64) -> Weight {
        let items = u64::from(items);
        let cost = match self.cost {
            Cost::Items => items,
            Cost::Bytes => bytes.max(1),
            Cost::Tokens => claim.cost.unwrap_or(items),
            Cost::Length => claim.cost.unwrap_or(1).saturating_mul(items),
        };
        Weight { tenant: claim.tenant.as_deref().map_or(0, |name| self.number(name)), cost }
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

impl Weight {
    /// The share of some of its items, never less than their part.
    pub(crate) fn of(self, items: u32, all: u32) -> Self {
        let (items, all) = (u128::from(items), u128::from(all.max(1)));
        let cost = (u128::from(self.cost) * items).div_ceil(all);
        Self { cost: u64::try_from(cost).unwrap_or(u64::MAX), ..self }
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
        Claim { tenant: tenant.map(Into::into), cost }
    }

    fn shares(cost: Cost) -> Shares {
        let tenants = vec![("gold".to_owned(), 4), ("silver".to_owned(), 2)];
        Shares { tenants, cost, cost_max: Some(100) }
    }

    #[test]
    fn tenants_with_a_weight_have_numbers_of_their_own() {
        let number =
            |name: Option<&str>| shares(Cost::Items).weigh(&claim(name, None), 1, 1).tenant;
        assert_eq!([number(None), number(Some("gold")), number(Some("silver"))], [0, 1, 2]);
        let strangers = (0..1000).map(|it| number(Some(&format!("stranger-{it}"))));
        let strangers: std::collections::BTreeSet<_> = strangers.collect();
        assert_eq!((strangers.first(), strangers.last()), (Some(&3), Some(&63)));
        assert_eq!(number(Some("a")), number(Some("a")));
    }

    #[test]
    fn a_request_weighs_its_items_its_bytes_or_what_it_says() {
        let weigh = |cost, said| shares(cost).weigh(&claim(None, said), 3, 500).cost;
        assert_eq!([weigh(Cost::Items, Some(9)), weigh(Cost::Bytes, Some(9))], [3, 500]);
        assert_eq!([weigh(Cost::Tokens, Some(9)), weigh(Cost::Tokens, None)], [9, 3]);
        assert_eq!([weigh(Cost::Length, Some(9)), weigh(Cost::Length, None)], [27, 3]);
    }

    #[test]
    fn the_portions_of_a_request_weigh_no_less_than_the_whole() {
        let whole = Weight { tenant: 5, cost: 10 };
        assert_eq!([whole.of(1, 3).cost, whole.of(3, 3).cost], [4, 10]);
        assert_eq!(Weight { cost: u64::MAX, ..whole }.of(1, 1).cost, u64::MAX);
    }

    #[test]
    fn the_batcher_hears_of_weights_and_limits() {
        let config = shares(Cost::Length).apply(Config::default());
        assert_eq!(config.tenant_weights, [(1, 4), (2, 2)]);
        assert_eq!((config.max_cost, config.measure), (100, Measure::Padded));
        assert_eq!(Shares::default().apply(Config::default()), Config::default());
    }
}
