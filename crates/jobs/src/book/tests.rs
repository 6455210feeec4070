//! The book of jobs with virtual time: order, bounds, expiry, owners, keys.

use super::*;
use crate::job::IdempotencyKey;
use crate::webhook::WebhookState;

const KEEP: u64 = 1000;

fn owner(name: &str) -> JobOwner {
    JobOwner { key: Some(name.to_owned()), tenant: None }
}

fn record(id: u128, created: u64) -> JobRecord {
    JobRecord {
        id: JobId::of(id),
        owner: owner("a"),
        model: "m".to_owned(),
        created,
        bytes: 10,
        idempotency: None,
        again: false,
        cancelled: false,
        ended: None,
        webhook: None,
    }
}

fn book(count_max: usize, bytes_max: u64) -> JobBook {
    JobBook::new((count_max, bytes_max, KEEP), Vec::new())
}

/// Adds a job and lets it wait.
fn added(book: &mut JobBook, record: JobRecord) -> u64 {
    let Ok(Added::New(number)) = book.add(record) else { panic!("not added") };
    book.stored(number);
    number
}

fn end(book: &mut JobBook, number: u64, now: u64, status: u16) {
    let ended = book.answered(number, now, (status, 4), false).unwrap().unwrap();
    assert!(book.end(number, ended));
}

#[test]
fn jobs_are_taken_in_the_order_in_which_they_came_and_not_before_they_are_stored() {
    let mut book = book(10, 1000);
    let Ok(Added::New(first)) = book.add(record(1, 0)) else { panic!() };
    let second = added(&mut book, record(2, 0));
    assert_eq!((book.view(first), book.find(&owner("a"), JobId::of(1))), (None, None));
    assert_eq!(book.take(1).map(|job| job.number), Some(second));
    book.stored(first);
    assert_eq!(book.take(1).map(|job| job.number), Some(first));
    assert!(book.take(1).is_none());
    assert_eq!(book.running(), 2);
}

#[test]
fn an_answer_is_kept_for_its_time_and_a_request_until_it_is_answered() {
    let mut book = book(10, 1000);
    let number = added(&mut book, record(1, 0));
    assert!(book.expire(KEEP * 5).is_empty(), "a request that waits is not lost");
    let job = book.take(KEEP * 5).unwrap();
    assert!(job.late, "its time is over");
    end(&mut book, number, KEEP * 5, 408);
    assert_eq!(book.view(number).unwrap().state, JobState::Failed);
    assert_eq!(book.next_time(9), Some(KEEP * 6));
    assert!(book.expire(KEEP * 6 - 1).is_empty());
    assert_eq!(book.expire(KEEP * 6), [(number, JobId::of(1))]);
    assert_eq!((book.view(number), book.next_time(9), book.bytes), (None, None, 0));
    assert!(book.of_owner.is_empty() && book.numbers.is_empty() && book.expiring.is_empty());
}

#[test]
fn count_and_bytes_are_bounds() {
    let mut book = book(2, 25);
    let record = |id, created| JobRecord { owner: JobOwner::default(), ..record(id, created) };
    let number = added(&mut book, record(1, 0));
    let large = JobRecord { bytes: 16, ..record(2, 0) };
    assert!(matches!(book.add(large), Err(JobError::TooLarge { bytes: 16 })));
    added(&mut book, record(3, 0));
    assert!(matches!(book.add(record(4, 0)), Err(JobError::TooMany { count: 2 })));
    book.take(1).unwrap();
    let no_room = book.answered(number, 1, (200, 16), false).unwrap();
    assert!(no_room.is_err(), "no room for six bytes more");
    end(&mut book, number, 1, 200);
    assert_eq!(book.bytes, 14, "the answer is in the place of the request");
    book.remove(number);
    added(&mut book, record(4, 0));
}

#[test]
fn another_attempt_comes_after_its_delay_and_waits_for_room() {
    let mut book = book(10, 1000);
    let number = added(&mut book, record(1, 0));
    book.take(0).unwrap();
    book.put_back(number, 50, false);
    assert_eq!((book.next_time(1), book.next_time(0)), (Some(50), None));
    assert!(book.take(49).is_none());
    assert_eq!(book.take(50).unwrap().attempts, 1);
    book.put_back(number, 60, true);
    assert_eq!(book.take(60).unwrap().attempts, 1, "what the server broke off does not count");
}

#[test]
fn a_key_finds_its_job_again_and_no_other() {
    let mut book = book(10, 1000);
    let key = |request: &str| Some(IdempotencyKey::new("k", &[request.as_bytes()]));
    let with_key = |id, request| JobRecord { idempotency: key(request), ..record(id, 0) };
    let number = added(&mut book, with_key(1, "x"));
    assert_eq!(book.add(with_key(2, "x")).unwrap(), Added::Known(number));
    assert!(matches!(book.add(with_key(3, "y")), Err(JobError::OtherRequest)));
    let others = JobRecord { owner: owner("b"), ..with_key(4, "y") };
    assert!(matches!(book.add(others), Ok(Added::New(_))));
    book.remove(number);
    assert!(matches!(book.add(with_key(5, "y")), Ok(Added::New(_))), "the key is free again");
}

#[test]
fn a_job_is_seen_by_its_owner_only() {
    let mut book = book(10, 1000);
    let number = added(&mut book, record(1, 0));
    assert_eq!(book.find(&owner("a"), JobId::of(1)), Some(number));
    assert_eq!(book.find(&owner("b"), JobId::of(1)), None);
    let tenant = JobOwner { tenant: Some("t".to_owned()), ..owner("a") };
    assert_eq!(book.find(&tenant, JobId::of(1)), None);
    let all = JobFilter { limit: 10, ..JobFilter::default() };
    assert!(book.list(&owner("b"), &all).0.is_empty());
}

#[test]
fn a_list_has_pages_and_filters() {
    let mut book = book(10, 1000);
    for id in 0..5 {
        let model = if id == 3 { "n" } else { "m" };
        added(&mut book, JobRecord { model: model.to_owned(), ..record(id, 0) });
    }
    let taken = book.take(1).unwrap();
    end(&mut book, taken.number, 1, 200);
    let ids = |views: &[JobView]| views.iter().map(|view| view.id).collect::<Vec<_>>();
    let page = JobFilter { limit: 3, ..JobFilter::default() };
    let (views, next) = book.list(&owner("a"), &page);
    assert_eq!(ids(&views), [4, 3, 2].map(JobId::of));
    let (views, next) = book.list(&owner("a"), &JobFilter { before: next, ..page.clone() });
    assert_eq!((ids(&views), next), ([1, 0].map(JobId::of).to_vec(), None));
    let of_model = JobFilter { model: Some("n".to_owned()), ..page.clone() };
    assert_eq!(ids(&book.list(&owner("a"), &of_model).0), [JobId::of(3)]);
    let of_state = JobFilter { state: Some(JobState::Succeeded), ..page };
    assert_eq!(ids(&book.list(&owner("a"), &of_state).0), [JobId::of(0)]);
}

#[test]
fn after_a_restart_what_had_no_answer_waits_again() {
    let ended = JobRecord { ended: Some((7, 200)), ..record(2, 0) };
    let mut book = JobBook::new((10, 1000, KEEP), vec![(3, record(1, 0)), (5, ended)]);
    assert_eq!(book.take(8).unwrap().number, 3);
    assert!(book.take(8).is_none());
    assert_eq!(book.next_time(1), Some(7 + KEEP));
    assert_eq!(added(&mut book, record(3, 0)), 6, "numbers go on");
}

#[test]
fn a_receiver_that_is_busy_leaves_its_turn_to_others() {
    let mut book = book(10, 1000);
    for (id, url) in [(1, "https://slow:1/a"), (2, "https://slow:1/b"), (3, "https://quick/a")] {
        let webhook = Some(JobWebhook::new(url.to_owned()));
        let number = added(&mut book, JobRecord { webhook, ..record(id, 0) });
        end(&mut book, number, 5, 200);
    }
    let busy = ["slow:1".to_owned()];
    assert_eq!(book.take_webhook(5, &busy).unwrap().url, "https://quick/a");
    assert!(book.take_webhook(5, &busy).is_none() && book.webhook_time(&busy).is_none());
    assert_eq!(book.webhook_time(&[]), Some(0));
    let urls = [0, 1].map(|_| book.take_webhook(5, &[]).unwrap().url);
    assert_eq!(urls, ["https://slow:1/a", "https://slow:1/b"]);
}

#[test]
fn a_webhook_is_due_when_its_job_has_ended_and_again_at_its_time_also_after_a_restart() {
    let with_webhook =
        |id| JobRecord { webhook: Some(JobWebhook::new("url".to_owned())), ..record(id, 0) };
    let mut book = book(10, 1000);
    let (number, deleted) = (added(&mut book, with_webhook(1)), added(&mut book, with_webhook(2)));
    added(&mut book, record(3, 0));
    assert!(book.take_webhook(5, &[]).is_none(), "they have not ended");
    for number in 0..3 {
        end(&mut book, number, 5, 200);
    }
    let due = book.take_webhook(5, &[]).unwrap();
    let of_job = (due.number, due.attempts, due.url.as_str(), due.job.state);
    assert_eq!(of_job, (number, 0, "url", JobState::Succeeded));
    book.remove(deleted);
    assert!(book.take_webhook(5, &[]).is_none(), "one is being sent, and one is deleted");
    assert!(book.webhook_sent(deleted, WebhookOutcome::Delivered).is_none());
    let noted = book.webhook_sent(number, WebhookOutcome::Again(20)).unwrap();
    assert!(book.take_webhook(19, &[]).is_none());
    assert_eq!(
        (book.webhook_time(&[]), book.take_webhook(20, &[]).unwrap().attempts),
        (Some(20), 1)
    );

    let mut book = JobBook::new((10, 1000, KEEP), vec![(number, noted)]);
    assert_eq!(book.take_webhook(20, &[]).unwrap().attempts, 1, "attempts are kept");
    let noted = book.webhook_sent(number, WebhookOutcome::Failed).unwrap();
    let seen = book.view(number).unwrap().webhook.unwrap();
    assert_eq!((seen.state, seen.attempts), (WebhookState::Failed, 2));
    assert_eq!(book.counts().totals.webhooks.failed, 1);
    let mut book = JobBook::new((10, 1000, KEEP), vec![(number, noted)]);
    assert!(book.take_webhook(1 << 40, &[]).is_none() && book.webhook_time(&[]).is_none());
}

#[test]
fn whoever_waits_is_told_when_a_job_is_deleted() {
    let mut book = book(10, 1000);
    let number = added(&mut book, record(1, 0));
    book.take(1).unwrap();
    let changed = book.changed(number).unwrap();
    let mut told = Box::pin(changed.notified());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(told.as_mut().poll(&mut context).is_pending());
    book.remove(number);
    assert!(told.as_mut().poll(&mut context).is_ready());
    assert_eq!(book.running(), 0);
    assert!(book.answered(number, 1, (200, 1), false).is_none());
}

#[test]
fn one_key_has_half_of_the_room_and_leaves_the_rest_to_others() {
    let mut book = book(4, 80);
    let number = added(&mut book, record(1, 0));
    let large = JobRecord { bytes: 31, ..record(2, 0) };
    assert!(matches!(book.add(large), Err(JobError::TooManyOfKey { count: 1 })), "half the bytes");
    added(&mut book, record(2, 0));
    assert!(matches!(book.add(record(3, 0)), Err(JobError::TooManyOfKey { count: 2 })));
    for id in 3..5 {
        added(&mut book, JobRecord { owner: owner("b"), ..record(id, 0) });
    }
    book.remove(number);
    added(&mut book, record(5, 0));
}

#[test]
fn a_job_is_cancelled_whether_it_waits_or_runs_and_ends_once() {
    let mut book = book(10, 1000);
    let (first, second) = (added(&mut book, record(1, 5)), added(&mut book, record(2, 6)));
    assert_eq!(book.take(7).unwrap().number, first);
    for number in [first, second] {
        let ended = book.answered(number, 8, (409, 4), true).unwrap().unwrap();
        assert!(book.answered(number, 8, (200, 4), false).is_none(), "somebody ends it");
        book.put_back(number, 9, false);
        assert!(book.end(number, ended));
        assert!(book.answered(number, 9, (200, 4), false).is_none());
        assert_eq!(book.view(number).unwrap().state, JobState::Cancelled);
    }
    assert!(book.take(99).is_none());
    assert_eq!(book.running(), 0);
    let (third, again) =
        (added(&mut book, record(3, 9)), JobRecord { again: true, ..record(4, 9) });
    let fourth = added(&mut book, again);
    let unwritten = book.answered(third, 9, (200, 4), false).unwrap();
    assert!(unwritten.is_ok());
    book.unanswered(third);
    book.put_back(third, 20, true);
    let counts = book.counts();
    assert_eq!((counts.queued, counts.running, counts.failed), (2, 0, 2));
    assert_eq!((counts.waiting_since, counts.bytes), (Some(9), 4 + 4 + 10 + 10));
    end(&mut book, fourth, 10, 200);
    assert_eq!((book.counts().succeeded, book.bytes), (1, 4 + 4 + 10 + 14), "its request is kept");
    book.expire(10 + KEEP);
    let expected =
        JobTotals { submitted: 4, succeeded: 1, failed: 2, expired: 3, ..JobTotals::default() };
    assert_eq!((book.counts().totals, book.counts().failed), (expected, 0));
}
