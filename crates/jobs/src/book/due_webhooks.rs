//! The webhooks of jobs that have ended and are yet to be delivered.

use std::collections::{BTreeMap, BTreeSet};

use crate::job::JobRecord;
use crate::webhook::{JobWebhook, WebhookState, receiver};

/// By receiver: when a webhook is due, and of which job.
#[derive(Default)]
pub(super) struct DueWebhooks(BTreeMap<String, BTreeSet<(u64, u64)>>);

impl DueWebhooks {
    pub(super) fn insert(&mut self, number: u64, record: &JobRecord) {
        if let Some(webhook) = waiting(record) {
            let of_receiver = self.0.entry(receiver(&webhook.url).to_owned()).or_default();
            of_receiver.insert((webhook.due, number));
        }
    }

    pub(super) fn remove(&mut self, number: u64, record: &JobRecord) {
        if let Some(webhook) = waiting(record) {
            self.remove_from(receiver(&webhook.url), (webhook.due, number));
        }
    }

    fn remove_from(&mut self, receiver: &str, due: (u64, u64)) {
        let Some(of_receiver) = self.0.get_mut(receiver) else { return };
        of_receiver.remove(&due);
        if of_receiver.is_empty() {
            self.0.remove(receiver);
        }
    }

    /// The first of each receiver that is not busy.
    fn firsts(&self, busy: &[String]) -> impl Iterator<Item = ((u64, u64), &str)> {
        let free = self.0.iter().filter(move |(receiver, _)| !busy.contains(receiver));
        free.filter_map(|(receiver, of_receiver)| Some((*of_receiver.first()?, receiver.as_str())))
    }

    /// Takes out the one that is due first, and gives the number of its job.
    pub(super) fn take(&mut self, now: u64, busy: &[String]) -> Option<u64> {
        let (due, receiver) = self.firsts(busy).min().filter(|((at, _), _)| *at <= now)?;
        let receiver = receiver.to_owned();
        self.remove_from(&receiver, due);
        Some(due.1)
    }

    /// When the next one is due.
    pub(super) fn next(&self, busy: &[String]) -> Option<u64> {
        self.firsts(busy).map(|((at, _), _)| at).min()
    }
}

fn waiting(record: &JobRecord) -> Option<&JobWebhook> {
    record.webhook.as_ref().filter(|webhook| webhook.state == WebhookState::Waiting)
}
