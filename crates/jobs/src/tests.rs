//! Jobs with a real folder: what was said to be durable is there when it is opened again.

use std::path::Path;
use std::time::Duration;

use super::*;

fn config(folder: &Path) -> JobsConfig {
    JobsConfig {
        folder: folder.join("jobs"),
        database: None,
        count_max: 1000,
        bytes_max: 1 << 20,
        keep: Duration::from_secs(100),
        parallel: 4,
    }
}

fn new_job(body: &[u8]) -> NewJob {
    let head = KeptRequestHead {
        method: "POST".to_owned(),
        uri: "/predictions/m?x=1".to_owned(),
        id: "one".to_owned(),
        tenant: None,
        headers: vec![("x-a".to_owned(), "gr\u{fc}n".to_owned())],
    };
    let request = KeptRequest { head, body: body.to_vec().into() };
    NewJob {
        owner: JobOwner::default(),
        model: "m".to_owned(),
        idempotency: None,
        request,
        again: false,
        webhook: None,
    }
}

fn answer(body: &[u8]) -> KeptAnswer {
    KeptAnswer {
        head: KeptAnswerHead { status: 200, headers: Vec::new() },
        body: body.to_vec().into(),
    }
}

fn files(config: &JobsConfig) -> usize {
    std::fs::read_dir(config.folder.join("bodies")).unwrap().count()
}

#[tokio::test]
async fn there_is_no_file_before_the_first_job() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = Jobs::new(config(folder.path()));
    assert!(!jobs.exist() && !jobs.config().folder.exists());
    jobs.open().await.unwrap().submit(new_job(b"x"), 1).await.unwrap();
    assert!(jobs.exist() && jobs.config().folder.exists());
}

#[tokio::test]
async fn a_folder_that_is_opened_again_has_its_jobs_and_answers() {
    let (folder, owner) = (tempfile::tempdir().unwrap(), JobOwner::default());
    let large = vec![7; message::INLINE_MAX + 1];
    let (first, second) = {
        let jobs = Jobs::new(config(folder.path()));
        let open = jobs.open().await.unwrap();
        let first = open.submit(new_job(&large), 1).await.unwrap();
        let second = open.submit(new_job(b"small"), 2).await.unwrap();
        let taken = open.take(3, 4).await.unwrap();
        assert_eq!(open.request(&taken).await.unwrap(), new_job(&large).request);
        open.end(&taken, answer(&large), 4).await.unwrap();
        assert_eq!(files(jobs.config()), 1, "the answer is in the place of the request");
        open.take(5, 4).await.unwrap();
        (first, second)
    };
    let jobs = Jobs::new(config(folder.path()));
    std::fs::write(jobs.config().folder.join("bodies/0.request"), "left by a crash").unwrap();
    // The thread of the first one may still hold the file.
    let open = loop {
        match jobs.open().await {
            Ok(open) => break open,
            Err(JobError::InUse { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(files(jobs.config()), 1);
    assert_eq!(open.view(&owner, first.id).await.unwrap().state, JobState::Succeeded);
    assert_eq!(open.answer(&owner, first.id).await.unwrap(), answer(&large));
    let taken = open.take(6, 4).await.unwrap();
    assert_eq!((taken.id, taken.attempts), (second.id, 0), "nobody answered it");
    assert_eq!(open.request(&taken).await.unwrap(), new_job(b"small").request);
    open.delete(&owner, first.id).await.unwrap();
    assert_eq!(files(jobs.config()), 0);
    assert!(matches!(open.answer(&owner, first.id).await, Err(JobError::Unknown)));
}

#[tokio::test]
async fn a_job_that_is_deleted_while_it_runs_stays_deleted() {
    let (folder, owner) = (tempfile::tempdir().unwrap(), JobOwner::default());
    let jobs = Jobs::new(config(folder.path()));
    let open = jobs.open().await.unwrap();
    let job = open.submit(new_job(b"x"), 1).await.unwrap();
    let taken = open.take(2, 4).await.unwrap();
    open.delete(&owner, job.id).await.unwrap();
    open.end(&taken, answer(b"y"), 3).await.unwrap();
    assert!(matches!(open.view(&owner, job.id).await, Err(JobError::Unknown)));
    open.over(&taken).await;
    assert_eq!(open.take(4, 1).await.map(|job| job.number), None);
}

#[tokio::test]
async fn many_jobs_at_once_are_all_kept_and_expire_at_their_time() {
    let (folder, owner) = (tempfile::tempdir().unwrap(), JobOwner::default());
    let jobs = Jobs::new(config(folder.path()));
    let open = jobs.open().await.unwrap();
    let submitted: Vec<_> = (0..300)
        .map(|_| {
            let open = Arc::clone(open);
            tokio::spawn(async move { open.submit(new_job(b"x"), 1).await.unwrap().id })
        })
        .collect();
    for id in submitted {
        open.view(&owner, id.await.unwrap()).await.unwrap();
    }
    while let Some(taken) = open.take(2, 1).await {
        open.end(&taken, answer(b"y"), 2).await.unwrap();
    }
    let all = JobFilter { limit: 1000, ..JobFilter::default() };
    assert_eq!(open.list(&owner, &all).await.unwrap().0.len(), 300);
    open.expire(100_001).await.unwrap();
    assert_eq!(open.list(&owner, &all).await.unwrap().0.len(), 300);
    open.expire(100_002).await.unwrap();
    open.expire(100_002).await.unwrap();
    assert_eq!(open.list(&owner, &all).await.unwrap().0.len(), 0);
}

#[tokio::test]
async fn two_servers_do_not_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (Jobs::new(config(folder.path())), Jobs::new(config(folder.path())));
    one.open().await.unwrap();
    assert!(matches!(other.open().await, Err(JobError::InUse { .. })));
}
