//! When does the batch leave, and with whom?
//!
//! A [`Batcher`] is a pure state machine for one version of one model: [`Batcher::step`] takes the
//! time and an [`Event`] and writes down [`Actions`]. It has no clock, no threads, no I/O, no
//! logging and no dependencies, and it allocates only while its buffers grow; the same events
//! always give the same actions. The engine runs it, simulators and property tests play with it.
//!
//! ```
//! use jitney_batcher::{Action, Actions, Batcher, Config, DispatchReason, Event, Policy};
//! use jitney_batcher::{Request, RequestId, WorkerId};
//!
//! let policy = Policy::Window { delay: 5_000_000 };
//! let mut batcher = Batcher::new(Config { policy, max_items: 4, ..Config::default() });
//! let mut out = Actions::new();
//!
//! batcher.step(0, Event::WorkerUp { worker: WorkerId(0), slots: 1 }, &mut out);
//! let (anna, ben) = (RequestId::new(0, 0), RequestId::new(1, 0));
//! batcher.step(1_000_000, Event::Arrive(Request::new(anna)), &mut out);
//! batcher.step(2_000_000, Event::Arrive(Request::new(ben)), &mut out);
//!
//! // Nobody left yet: two of four are here, and the window of the older one is open.
//! assert_eq!(out.iter().collect::<Vec<_>>(), [&Action::SetTimer(6_000_000)]);
//!
//! out.clear();
//! batcher.step(6_000_000, Event::Timer, &mut out);
//! let Some(Action::Dispatch(batch)) = out.iter().next() else { panic!() };
//! assert_eq!(out.members(&batch.members), [anna, ben]);
//! assert_eq!(batch.reason, DispatchReason::Window);
//! ```
//!
//! # The life of a request
//!
//! ```text
//!            ┌── Reject ◀── too large, expired, cancelled, queue full, draining
//! Arrive ─▶ lane ── due, and a slot is free ─▶ batch on a worker ── Done ─▶ answered by the caller
//!            ▲                                   ▲    │
//!            └── worker removed ─────────────────│────┤
//!                              retry group ──────┘    │
//!                                 ▲                   │
//!                                 └── another chance ─┴─ Failed, WorkerDown ─▶ Fail
//! ```
//!
//! Every request that arrived ends exactly once: by [`Action::Reject`], by [`Action::Fail`], or
//! with the [`Event::Done`] of its batch.
//!
//! # The rules
//!
//! - A **lane** holds those who may meet in a batch: the same group, the same worker where they are
//!   pinned to one and, unless [`Config::mix_origins`], the same kind of origin. Within a lane and a priority nobody overtakes.
//! - Where items are **padded** ([`Measure::Padded`]) a lane holds the lengths of one half octave. A
//!   batch that takes all of its lane borrows from the next shorter one while no more than a fifth
//!   of it is padding; every dispatch tells what was real and what was padded.
//! - A batch leaves when its lane is **due** by the [`Policy`] and a worker has a free slot: the
//!   lowest-numbered such worker. Its members are chosen at that moment and not before.
//! - **Interactive** goes before **bulk**. Bulk fills the room that is left, and leads every ninth
//!   departure at the latest while it is due. Among equals the oldest goes first.
//! - Nobody departs at or after their **deadline**; a timer sees to it that they hear so at once.
//!   While a worker is free, nobody spends more than half of their time waiting for a window.
//! - A request that need not travel as a whole arrives in **portions** ([`Request::more`]): they fill
//!   whatever room is left, are decided on when all are there, and count as one request that waits.
//! - **Isolation**: a batch on which the model failed is tried again in halves, one whose worker
//!   died or hung, one by one. See [`Config::isolate`] and [`Config::retry_budget`].
//! - A **pinned** request ([`Request::worker`]) leaves with that worker only, is never tried again,
//!   and is refused as soon as that worker is gone or about to go.
//! - After every step no batch is due while a slot is free.
//!
//! # How the adaptive policy decides
//!
//! It keeps the rules above, except that a line is ordered by **deadline** and that it chooses the
//! moment by what it has learned. Nothing needs to be set; a request without a deadline gets
//! [`Adaptive::objective`] where there is one.
//!
//! - It **learns** how long a batch of each size takes (mean and 90th percentile, per group), how
//!   fast requests come, and how soon clients who were answered come back. Sizes are approached in
//!   steps of four times the largest. What was learned is doubted after a quarter of a second without an answer: then an
//!   idle worker takes whoever is there.
//! - **Who**: all who fit. If that would make the most hurried late, a batch small enough for it,
//!   provided that the workers keep up with such batches and everybody behind can still be served.
//!   If not, the batch that serves the most per unit of time; those passed over are refused
//!   (`Overload`) as soon as no worker can serve them in time, and whoever has no hope at all at
//!   the door or at the head of the line (`Hopeless`), both with the predicted time to drain. Hope
//!   is a batch as fast as one in twenty: who has that much is tried where it makes nobody late.
//! - **When**: at once, unless waiting pays: more come before the next worker is free than the wait
//!   costs those who are here; clients who were just answered are on their way back; several
//!   workers are better fed evenly than one by every trickle; requests come in groups; or all
//!   workers would be busy for too long for newcomers to be in time. Never past the moment at which one
//!   more could still be taken along in time, and never longer than [`Adaptive::max_wait`].
//! - At a **step** of the curve, or of [`Config::sizes`], the last few are left for the next
//!   worker if that costs them less than it saves the others.
//! - **Tenants** take turns by weight when not all fit. While one that asks for less than its share
//!   is there and the workers are busy, batches stay short enough to be in time for it. Of a full
//!   queue the one furthest above its share gives way (`Quota`).
//! - A worker with a second **slot** gets its next batch as the last one ends, ahead by the measured
//!   handoff and by how much sooner than planned batches end, and no more, so that batches are not
//!   frozen early: not while another worker is idle, not while those who are about to be answered
//!   would come back and fill it, and not when the worker is overdue. Such a worker is expected any
//!   moment, one that is far overdue is not planned with.
//!
//! Deliberately absent: splitting a request over batches, and a model of how batches slow each
//! other down on one device.
#![forbid(unsafe_code)]

mod action;
mod adaptive;
mod batcher;
mod config;
mod event;
mod fifo;
mod forecast;
mod pace;
mod padding;
mod policy;
mod queue;
mod records;
mod recovery;
mod request;
mod retry;
mod running;
mod state;
mod workers;

pub use action::{Action, Actions, Dispatch, DispatchReason, MemberRange, Rejection};
pub use adaptive::{CurvePoint, Decision, DecisionKind};
pub use batcher::Batcher;
pub use config::{Adaptive, Config, Measure, Policy};
pub use event::{BatchFailure, DownReason, Event};
pub use padding::Padding;
pub use request::{BatchId, Nanos, Origin, OriginKind, Priority, Request, RequestId, WorkerId};
