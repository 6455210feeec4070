//! Sessions as the pool sees them: they run batches, survive bad ones, and die alone.

use std::future::poll_fn;
use std::time::Duration;

use super::*;
use crate::onnx::session::Session;
use crate::outcome::WorkerExit;
use crate::pool::{Launcher, Worker, WorkerGone, WorkerMessage};

const DEAD: WorkerExit = WorkerExit::Crashed { killed: false };

fn session() -> Session {
    let identity = Identity { name: "tiny".to_owned(), version: "1.0".to_owned() };
    let runner = Runner { model: model(LENGTH), identity };
    let work = move |inputs: &[TensorInput], options: &RunOptions| runner.run(inputs, options);
    Session::start("test".to_owned(), 1, work).expect("a thread")
}

async fn hear(worker: &mut dyn Worker) -> Result<BatchOutcome, WorkerGone> {
    match poll_fn(|context| worker.poll_message(context)).await? {
        WorkerMessage::Finished { outcome, .. } => Ok(outcome),
        WorkerMessage::Pieces { .. } => panic!("a session does not stream"),
    }
}

async fn ride(session: &mut Session, inputs: Vec<TensorInput>) -> Result<BatchOutcome, WorkerGone> {
    session.ride(1, inputs).await?;
    hear(session).await
}

#[tokio::test]
async fn a_session_answers_batch_after_batch() {
    let (mut session, model) = (session(), model(LENGTH));
    for items in 1..4 {
        let inputs: Vec<_> = (0..items).map(|_| accept(&model, "[1, 2]")).collect();
        let outcome = ride(&mut session, inputs).await.expect("alive");
        let BatchOutcome::Items(answers) = outcome else { panic!("the batch failed") };
        assert_eq!(answers.len(), items);
    }
}

#[tokio::test]
async fn a_failed_batch_leaves_the_session_alive() {
    let (mut session, model) = (session(), model(LENGTH));
    let mixed = ["[1]", "[1, 2]"].map(|json| accept(&model, json)).to_vec();
    assert!(matches!(ride(&mut session, mixed).await, Ok(BatchOutcome::Failed(_))));
    let good = vec![accept(&model, "[1]")];
    assert!(matches!(ride(&mut session, good).await, Ok(BatchOutcome::Items(_))));
}

#[tokio::test]
async fn a_panic_kills_the_session_and_its_batch_but_nothing_else() {
    let work = |_: &[TensorInput], _: &RunOptions| panic!("the engine is confused");
    let mut session = Session::start("test".to_owned(), 2, work).expect("a thread");
    let inputs = vec![accept(&model(LENGTH), "[1]")];
    assert!(ride(&mut session, inputs.clone()).await.is_err());
    assert!(hear(&mut session).await.is_err(), "idle or not, it is seen to be dead");
    assert_eq!(session.exit().await, DEAD);
    assert!(ride(&mut session, inputs).await.is_err());
}

#[tokio::test]
async fn an_idle_session_is_alive_until_it_is_ended() {
    let mut session = session();
    let wait = tokio::time::timeout(Duration::from_millis(20), hear(&mut session));
    assert!(wait.await.is_err(), "nothing killed it");
    assert_eq!(session.pid(), None);
    Box::new(session).end(false).await;
}

#[tokio::test]
async fn sessions_of_one_launcher_run_at_the_same_time() {
    let launcher = OnnxLauncher::new(Arc::clone(&MAGIKA), SessionOptions::default());
    let (first, second) = tokio::join!(launcher.launch(0), launcher.launch(1));
    for worker in [first, second] {
        let mut worker = worker.expect("a session");
        worker.send_batch(1, &[]).await.expect("alive");
        assert!(hear(&mut *worker).await.is_ok(), "even a batch of nobody does not kill it");
        worker.end(true).await;
    }
}
