//! What a version has of the requests that the versions of its name share: its part of them, and copies.
//!
//! Both are there from the first time on that its name shares requests; a version of which none was ever shared or
//! copied keeps nothing about that, and no request of it looks here.

use std::sync::Arc;

use super::Model;
use crate::shadow::{ShadowBook, ShadowCounts};
use crate::traffic_split::{TrafficSplit, VersionShare};

impl Model {
    /// Its share of the calls that name no version, in millionths, where versions share them.
    pub fn share(&self) -> Option<u32> {
        self.share.get().and_then(VersionShare::read)
    }

    /// How often its share was taken away because it was worse than the default version.
    pub fn returns(&self) -> u64 {
        self.share.get().map_or(0, VersionShare::returns)
    }

    /// Why it has no share any more, where that was taken away.
    pub fn why_returned(&self) -> Option<Arc<String>> {
        self.share.get().and_then(VersionShare::why_returned)
    }

    /// Counts that its share was taken away, or its copies.
    pub(crate) fn count_return(&self) {
        self.share.get_or_init(VersionShare::default).count_return();
    }

    /// The versions of its name share its requests like this, or do so no more.
    pub(super) fn note_split(&self, version: &str, split: Option<&Arc<TrafficSplit>>) {
        self.shadow().set(version, split);
        let share = self.share.get_or_init(VersionShare::default);
        share.set(split.and_then(|split| split.share(version)));
        share.note(split.and_then(|split| split.returned.get(version)).cloned());
    }

    /// Whether its requests are copied for another version, and what came of copies that it got.
    pub fn shadow(&self) -> &Arc<ShadowBook> {
        self.shadow.get_or_init(Arc::default)
    }

    /// The share of requests of which it gets copies, from 0 to 1, where it is a shadow.
    pub fn shadow_share(&self) -> Option<f64> {
        self.shadow.get().and_then(|book| book.share())
    }

    /// How many of the copies that it got ended how.
    pub fn shadow_counts(&self) -> ShadowCounts {
        self.shadow.get().map_or_else(|| ShadowBook::default().counts(), |book| book.counts())
    }
}
