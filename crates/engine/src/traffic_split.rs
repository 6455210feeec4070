//! Which version answers a request that names none, where several versions share the traffic of a model.
//!
//! The choice depends on the shares and on what the request is known by, and on nothing else: servers with the same
//! shares agree without talking. Every version gets a number from the hash, drawn from an exponential distribution
//! whose rate is its share, and the smallest number wins (weighted rendezvous hashing). So a share that grows takes
//! clients from the others and gives none back, and those of a version that cannot answer spread over the others.

mod rules;
mod shadow_rule;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use serde::{Deserialize, Serialize};

pub use self::rules::{Promotion, ReturnRule};
pub use self::shadow_rule::{SameRule, ShadowRule};

/// How the versions of a model share its traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficSplit {
    /// Weights by version; percentages, or any numbers. Without any the default version answers.
    #[serde(default)]
    pub shares: BTreeMap<String, f64>,
    /// What keeps a client at its version.
    #[serde(default, skip_serializing_if = "Sticky::is_default")]
    pub sticky: Sticky,
    /// When a version that is worse than the default one goes back to no share.
    #[serde(default, rename = "return", skip_serializing_if = "Option::is_none")]
    pub returns: Option<ReturnRule>,
    /// How the share of a version that is not worse grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promote: Option<Promotion>,
    /// A version that gets copies of requests, whose answers are only compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowRule>,
    /// How many pairs of answers that differ are kept to be looked at.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shadow_samples: usize,
    /// Why versions went back, by version.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub returned: BTreeMap<String, String>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// What a request is known by. One that does not have it is known by its id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Sticky {
    /// Its id: every request by itself.
    #[default]
    Request,
    /// The value of this header.
    Header(String),
    /// The value of this cookie.
    Cookie(String),
    /// The name of the key that its client has.
    Key,
}

impl Sticky {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl TryFrom<String> for Sticky {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let named = text.split_once(':').filter(|(_, name)| !name.is_empty());
        match (text.as_str(), named) {
            ("request", _) => Ok(Self::Request),
            ("key", _) => Ok(Self::Key),
            (_, Some(("header", name))) => Ok(Self::Header(name.to_ascii_lowercase())),
            (_, Some(("cookie", name))) => Ok(Self::Cookie(name.to_owned())),
            _ => Err(format!(
                "sticky must be header:NAME, cookie:NAME, key or request, not {text:?}"
            )),
        }
    }
}

impl From<Sticky> for String {
    fn from(sticky: Sticky) -> Self {
        match sticky {
            Sticky::Request => "request".to_owned(),
            Sticky::Header(name) => format!("header:{name}"),
            Sticky::Cookie(name) => format!("cookie:{name}"),
            Sticky::Key => "key".to_owned(),
        }
    }
}

impl FromStr for TrafficSplit {
    type Err = String;

    /// Reads the JSON document.
    fn from_str(text: &str) -> Result<Self, String> {
        let read: Self = serde_json::from_str(text).map_err(|error| format!("traffic: {error}"))?;
        let sound = |weight: &f64| weight.is_finite() && *weight >= 0.0;
        let shares = read.shares.values();
        // A shadow needs no shares, and nor does what is left of one that the server ended.
        let shadow_alone =
            read.shares.is_empty() && (read.shadow.is_some() || !read.returned.is_empty());
        if !shares.clone().all(sound) || !(shadow_alone || shares.clone().any(|it| *it > 0.0)) {
            return Err("traffic: shares must be numbers from 0 on, one of them above 0".to_owned());
        }
        if read.promote.is_some() && read.returns.is_none() {
            return Err("traffic: promote needs return, which says when to stop".to_owned());
        }
        if read.promote.is_some() && shares.filter(|it| **it > 0.0).count() > 2 {
            return Err("traffic: promote moves one version forward beside another; leave a third one without a share".to_owned());
        }
        read.check_shadow().map_err(|why| format!("traffic: {why}"))?;
        Ok(read)
    }
}

impl TrafficSplit {
    /// One version answers everything.
    pub fn whole(version: &str) -> Self {
        let shares = BTreeMap::from([(version.to_owned(), 100.0)]);
        Self { shares, ..Self::default() }
    }

    fn check_shadow(&self) -> Result<(), String> {
        let Some(rule) = &self.shadow else {
            let compares = self.returns.is_some_and(|rule| rule.different.is_some());
            return match compares || self.shadow_samples > 0 {
                true => Err("different and shadow_samples need a shadow".to_owned()),
                false => Ok(()),
            };
        };
        rule.check(self.shadow_samples)?;
        match self.shares.get(&rule.version) {
            Some(share) if *share > 0.0 => Err(format!(
                "version {} has a share of the requests, so it cannot be the shadow as well",
                rule.version
            )),
            _ => Ok(()),
        }
    }

    /// The same without the shadow, which did not do well for this reason.
    pub(crate) fn without_shadow(&self, why: String) -> Self {
        let mut split = Self { shadow: None, shadow_samples: 0, ..self.clone() };
        split.returns = self.returns.and_then(ReturnRule::without_different);
        split.promote = split.promote.filter(|_| split.returns.is_some());
        let version = self.shadow.as_ref().map(|rule| rule.version.clone());
        split.returned.extend(version.map(|version| (version, why)));
        split
    }

    /// The same where a version has so many percent; the others keep their proportions among the rest, and without any
    /// `old` has it.
    pub(crate) fn with_share(&self, version: &str, percent: f64, old: &str) -> Self {
        let mut split = self.clone();
        split.shares.insert(version.to_owned(), percent);
        let others = |(other, _): &(&String, &mut f64)| *other != version;
        let all: f64 = split.shares.iter_mut().filter(others).map(|(_, weight)| *weight).sum();
        if all > 0.0 {
            let each = split.shares.iter_mut().filter(others);
            each.for_each(|(_, weight)| *weight *= (100.0 - percent) / all);
        } else {
            split.shares.insert(old.to_owned(), 100.0 - percent);
        }
        split
    }

    /// The JSON document.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The shares in words.
    pub fn sentence(&self) -> String {
        let all = self.shares.values().sum::<f64>();
        let share = |(version, weight): (&String, &f64)| {
            format!("version {version}: {:.4} %", weight / all * 100.0).replace(".0000", "")
        };
        let mut text = match self.shares.is_empty() {
            true => "the default version: 100 %".to_owned(),
            false => self.shares.iter().map(share).collect::<Vec<_>>().join(", "),
        };
        if !self.sticky.is_default() {
            text += &format!("; clients are known by {}", String::from(self.sticky.clone()));
        }
        if let Some(ShadowRule { version, share, .. }) = &self.shadow {
            text += &format!("\nversion {version} is the shadow: it gets copies of {share} %");
        }
        for (version, why) in &self.returned {
            text += &format!("\nversion {version} was returned: {why}");
        }
        text
    }

    /// The share of a version, from 0 to 1; none of a version that it does not name.
    pub(crate) fn share(&self, version: &str) -> Option<f64> {
        Some(self.shares.get(version)? / self.shares.values().sum::<f64>())
    }

    /// The version for this hash, of those that are `found`.
    pub(crate) fn choose<T>(&self, hash: u64, found: impl Fn(&str) -> Option<T>) -> Option<T> {
        let sharing = self.shares.iter().filter(|(_, weight)| **weight > 0.0);
        let drawn = sharing.filter_map(|(version, weight)| {
            Some((-draw(hash, version).ln() / weight, found(version)?))
        });
        drawn.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, found)| found)
    }
}

/// The hash of what a request is known by: FNV-1a of 64 bits. It is the same everywhere.
pub fn hash(value: &[u8]) -> u64 {
    value.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A number between 0 and 1 that this hash has for this version: both are mixed by MurmurHash3's last step, since
/// FNV-1a leaves short texts alike.
fn draw(key: u64, version: &str) -> f64 {
    let mixed = mix(mix(key) ^ hash(version.as_bytes()));
    ((mixed >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
}

fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let number = (number ^ (number >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ (number >> 33)
}

/// The share of one version, for whoever shows it: written with the table of models.
#[derive(Debug)]
pub(crate) struct VersionShare {
    /// Of the traffic without a version; [`u32::MAX`] where versions do not share it.
    millionths: AtomicU32,
    /// How often it was taken away because the version was worse.
    returns: AtomicU64,
    /// Why that was, if it was the last that happened to it.
    note: ArcSwapOption<String>,
}

impl Default for VersionShare {
    fn default() -> Self {
        let millionths = AtomicU32::new(u32::MAX);
        Self { millionths, returns: AtomicU64::new(0), note: ArcSwapOption::empty() }
    }
}

impl VersionShare {
    pub(crate) fn set(&self, share: Option<f64>) {
        let millionths = share.map_or(u32::MAX, |share| (share * 1e6).round() as u32);
        self.millionths.store(millionths, Ordering::Relaxed);
    }

    pub(crate) fn note(&self, why: Option<String>) {
        self.note.store(why.map(Arc::new));
    }

    pub(crate) fn count_return(&self) {
        self.returns.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn returns(&self) -> u64 {
        self.returns.load(Ordering::Relaxed)
    }

    pub(crate) fn why_returned(&self) -> Option<Arc<String>> {
        self.note.load_full()
    }

    pub(crate) fn read(&self) -> Option<u32> {
        Some(self.millionths.load(Ordering::Relaxed)).filter(|it| *it != u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(shares: &[(&str, f64)]) -> TrafficSplit {
        let shares = shares.iter().map(|(version, weight)| ((*version).to_owned(), *weight));
        TrafficSplit { shares: shares.collect(), ..TrafficSplit::default() }
    }

    fn chosen<'a>(split: &'a TrafficSplit, user: usize, gone: &str) -> Option<&'a str> {
        let find = |version: &str| {
            split.shares.keys().map(String::as_str).find(|it| *it == version && *it != gone)
        };
        split.choose(hash(format!("user-{user}").as_bytes()), find)
    }

    #[test]
    fn shares_of_many_users_are_within_one_point() {
        // 100,000 requests of 20,000 users, some of whom ask more often than others.
        let split = split(&[("1.0", 70.0), ("2.0", 20.0), ("3.0", 10.0)]);
        let mut dice = fastrand::Rng::with_seed(7);
        let mut counts = BTreeMap::<&str, u32>::new();
        for _ in 0..100_000 {
            let user = dice.usize(..20_000);
            *counts.entry(chosen(&split, user, "").unwrap()).or_default() += 1;
        }
        for (version, expected) in [("1.0", 70.0), ("2.0", 20.0), ("3.0", 10.0)] {
            let percent = f64::from(counts[version]) / 1000.0;
            assert!((percent - expected).abs() < 1.0, "{version}: {percent} %");
        }
    }

    #[test]
    fn a_share_that_grows_takes_users_and_gives_none_back() {
        let (before, after) = (
            split(&[("1.0", 90.0), ("2.0", 10.0), ("3.0", 0.0)]),
            split(&[("1.0", 70.0), ("2.0", 30.0), ("3.0", 0.0)]),
        );
        let mut moved = 0;
        for user in 0..20_000 {
            match (chosen(&before, user, ""), chosen(&after, user, "")) {
                (Some("1.0"), Some("2.0")) => moved += 1,
                (before, after) => assert_eq!(before, after),
            }
        }
        assert!((3_800..4_200).contains(&moved), "{moved} of 20000 moved");
    }

    #[test]
    fn users_of_a_version_that_cannot_answer_spread_over_the_others() {
        let split = split(&[("1.0", 60.0), ("2.0", 20.0), ("3.0", 20.0)]);
        let mut moved = BTreeMap::<&str, u32>::new();
        for user in 0..20_000 {
            match (chosen(&split, user, ""), chosen(&split, user, "2.0")) {
                (Some("2.0"), Some(other)) => *moved.entry(other).or_default() += 1,
                (before, after) => assert_eq!(before, after),
            }
        }
        assert!((2.6..3.4).contains(&(f64::from(moved["1.0"]) / f64::from(moved["3.0"]))));
        let none = split.choose(7, |_| None::<()>);
        assert_eq!(none, None);
    }

    #[test]
    fn the_choice_is_the_same_on_every_machine_and_in_every_release() {
        let split = split(&[("1.0", 50.0), ("2.0", 50.0)]);
        let shown: Vec<_> = (0..12).map(|user| chosen(&split, user, "").unwrap()).collect();
        assert_eq!(hash(b"user-1"), 0xf84b_a2aa_754a_4bd4);
        assert_eq!(shown.join(" "), "2.0 2.0 2.0 2.0 2.0 2.0 1.0 2.0 2.0 1.0 1.0 2.0");
    }

    #[test]
    fn a_step_forward_takes_from_all_others_alike() {
        let stepped = |shares: &[(&str, f64)], percent| {
            let after = split(shares).with_share("2.0", percent, "1.0").shares;
            assert!((after.values().sum::<f64>() - 100.0).abs() < 1e-9, "{after:?}");
            after.into_values().collect::<Vec<_>>()
        };
        assert_eq!(stepped(&[("1.0", 90.0), ("2.0", 10.0)], 30.0), [70.0, 30.0]);
        assert_eq!(
            stepped(&[("1.0", 80.0), ("2.0", 10.0), ("3.0", 20.0)], 50.0),
            [40.0, 50.0, 10.0]
        );
        assert_eq!(stepped(&[("1.0", 9.0), ("2.0", 1.0), ("3.0", 0.0)], 25.0), [75.0, 25.0, 0.0]);
        assert_eq!(stepped(&[("2.0", 10.0)], 60.0), [40.0, 60.0]);
    }

    #[test]
    fn a_document_is_read_and_written_or_explained() {
        let text = r#"{"shares":{"1.0":90.0,"2.0":10.0},"sticky":"header:x-user"}"#;
        let read: TrafficSplit = text.parse().unwrap();
        assert_eq!((read.text(), read.share("2.0")), (text.to_owned(), Some(0.1)));
        let shadow: TrafficSplit =
            r#"{"shadow": {"version": "2.0"}, "return": {"different": "5%"}}"#.parse().unwrap();
        let ended = shadow.without_shadow("it differs".to_owned()).text();
        assert_eq!(ended, r#"{"shares":{},"returned":{"2.0":"it differs"}}"#);
        assert!(ended.parse::<TrafficSplit>().is_ok(), "a snapshot keeps it");
        for (text, expected) in [
            (r#"{"shares": {}}"#, "one of them above 0"),
            (r#"{"shares": {"1.0": -1, "2.0": 1}}"#, "numbers from 0 on"),
            (r#"{"shares": {"1.0": "x"}}"#, "invalid type"),
            (r#"{"shares": {"1.0": 1}, "sticki": "key"}"#, "unknown field `sticki`"),
            (r#"{"shares": {"1.0": 1}, "sticky": "header:"}"#, "sticky must be header:NAME"),
            (r#"{"shares": {"1.0": 1}, "promote": "10% every 1m"}"#, "promote needs return"),
            (
                r#"{"shares": {"1.0": 80, "2.0": 10, "3.0": 10}, "return": {"errors": "1%"}, "promote": "30% every 1m"}"#,
                "leave a third one without a share",
            ),
            (r#"{"shadow": {"version": "2.0", "share": 0}}"#, "a percentage above 0"),
            (r#"{"shadow": {"version": "2.0"}, "shadow_samples": 101}"#, "at most 100"),
            (r#"{"shares": {"2.0": 1}, "shadow": {"version": "2.0"}}"#, "the shadow as well"),
            (r#"{"shares": {"1.0": 1}, "return": {"different": "5%"}}"#, "need a shadow"),
        ] {
            let why = text.parse::<TrafficSplit>().unwrap_err();
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}
