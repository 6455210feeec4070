//! When is a batch dispatched, and with which requests?
//!
//! A [`Batcher`] is a pure state machine for one version of one model: [`Batcher::step`] takes the
//! time and an [`Event`] and writes down [`Actions`]. It has no clock, no threads, no I/O, no
//! logging and no dependencies, and it allocates only while its buffers grow. The same events
//! always give the same actions. The engine runs it, and so do simulators and property tests.
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
//! let (first, second) = (RequestId::new(0, 0), RequestId::new(1, 0));
//! batcher.step(1_000_000, Event::Arrive(Request::new(first)), &mut out);
//! batcher.step(2_000_000, Event::Arrive(Request::new(second)), &mut out);
//!
//! // Both wait: two of four items are there, and the window of the older request is open.
//! assert_eq!(out.iter().collect::<Vec<_>>(), [&Action::SetTimer(6_000_000)]);
//!
//! out.clear();
//! batcher.step(6_000_000, Event::Timer, &mut out);
//! let Some(Action::Dispatch(batch)) = out.iter().next() else { panic!() };
//! assert_eq!(out.members(&batch.members), [first, second]);
//! assert_eq!(batch.reason, DispatchReason::Window);
//! ```
//!
//! # The life of a request
//!
//! ```text
//!             ┌── Reject ◀── too large, expired, cancelled, queue full, draining
//! Arrive ─▶ queue ── due, and a slot is free ─▶ batch on a worker ── Done ─▶ answered by the caller
//!             ▲                                   ▲    │
//!             └── worker removed ─────────────────│────┤
//!                               retry group ──────┘    │
//!                                  ▲                   │
//!                                  └── tried again ────┴─ Failed, WorkerDown ─▶ Fail
//! ```
//!
//! Every request ends exactly once: by [`Action::Reject`], by [`Action::Fail`], or with the
//! [`Event::Done`] of its batch.
//!
//! # The rules
//!
//! - Requests of one **group** may share a batch: the same [`Request::group`], the same worker where
//!   they are pinned to one and, unless [`Config::mix_origins`], the same kind of origin. Within a
//!   group and a priority no request overtakes another.
//! - Where items are **padded** ([`Measure::Padded`]) a group holds the lengths of one half octave. A
//!   batch that takes its whole group borrows from the next shorter one while at most a fifth of
//!   the batch is padding. Every dispatch reports its cost without and with padding.
//! - Where the model runs only at certain **sizes** ([`Config::sizes`]) a batch takes as long as the
//!   next larger one. A padded model may have **lengths** too ([`Config::lengths`]), which are the groups.
//! - A batch is dispatched when its group is **due** by the [`Policy`] and a worker has a free slot:
//!   the lowest-numbered such worker. Its members are chosen at that moment and not before. Of workers
//!   that prepare batches while they run others ([`Event::Done`]) idle ones go first, and a busy one
//!   takes full batches only.
//! - **Interactive** requests go before **bulk**. Bulk fills the room that is left, and leads at
//!   least every ninth dispatch while it is due. Among equals the oldest goes first.
//! - No request is dispatched at or after its **deadline**; it is rejected as soon as the deadline
//!   passes. While a worker is free, no request spends more than half of its time in a window.
//! - A request that may be split arrives in **parts** ([`Request::more`]). Parts fill whatever room
//!   is left. Nothing is decided before the last part is there, and they count as one request.
//! - **Isolation**: a batch on which the model failed is tried again in halves, and so are all requests of a
//!   worker that crashed; those of one that hung are tried again one by one. See [`Config::isolate`] and
//!   [`Config::retry_budget`].
//! - The requests of a worker that crashed or hung are **suspects**. A group of them has a worker for itself,
//!   between two groups fresh requests have their turn, and after [`Config::suspect_time`] those that are left fail.
//! - A **pinned** request ([`Request::worker`]) runs on that worker only, is never tried again, and
//!   is rejected as soon as that worker is gone or about to go.
//! - A request may ask for a **model** that workers load when they need it ([`Request::model`]). It shares a batch only
//!   with requests for the same one, goes to the worker that holds it, and waits for that one as long as a load is
//!   measured to take; then, or where none holds it, another worker takes it. Such requests are served in order of
//!   arrival under every policy.
//! - After every step no batch is due while a slot is free, but for the worker that suspects wait for, and for requests
//!   that wait for the worker that holds their model.
//!
//! # How the adaptive policy decides
//!
//! It keeps the rules above, except that a queue is ordered by **deadline** and that the moment of a
//! dispatch follows from what was learned. Nothing needs to be set; a request without a deadline
//! gets [`Adaptive::objective`] where there is one.
//!
//! - It **learns** how long a batch of each size takes (mean and 90th percentile, per group), how
//!   fast requests come, and how soon answered clients come back. New sizes are tried in steps of
//!   four times the largest. After a quarter of a second without an answer what was learned counts
//!   as uncertain: then an idle worker takes whatever waits.
//! - **Which requests**: all that fit. If that would make the most urgent one late, a smaller batch
//!   that is in time for it, provided that the workers keep up with such batches and all requests
//!   behind it can still be served. If not, the batch that serves the most per unit of time. The
//!   requests that were passed over are rejected (`Overload`) once no worker can serve them in time.
//!   A request that no batch can answer in time is rejected on arrival or at the head of its queue
//!   (`Infeasible`). Both carry the predicted time to drain. "Can" means feasible at the 5th
//!   percentile of the service time; such a request is tried where that makes no other late.
//! - **When**: at once, unless waiting pays. It pays if more requests come before the next worker is
//!   free than the wait costs, if clients that were just answered are about to come back, if several
//!   workers are better fed evenly, if requests come in bursts, or if all workers would be busy for
//!   too long for new requests to be in time. It ends when one more request could no longer be added
//!   in time, and after [`Adaptive::max_wait`]. With [`Adaptive::window`] a batch is dispatched when
//!   it is full or its oldest request has waited for the window, and never waits for anything else.
//! - At a **step** of the curve, or of [`Config::sizes`], the last few requests are left for the next
//!   worker if that costs them less than it saves the others.
//! - Clients that come back to one worker are served in the **rhythm** that answers the most per unit
//!   of time: all in one batch, or in several of which one is prepared while another runs, at sizes at
//!   which the model runs.
//! - **Tenants** take turns by weight when not all requests fit. While the workers are busy and a
//!   tenant asks for less than its share, batches stay short enough to be in time for it. In a full
//!   queue a request of the tenant furthest above its share is rejected (`Quota`).
//! - A worker with a second **slot** gets its next batch shortly before the last one ends: ahead by
//!   the measured handoff and by how much sooner than planned batches end. It does not while another
//!   worker is idle, while the clients that are about to be answered would fill the batch, or when
//!   it is overdue. One that prepares batches while it runs others gets it ahead by what preparing it
//!   takes, and not where those who come too late for it lose more than that. An overdue worker is expected soon; one that is far overdue is not planned with.
//!
//! Deliberately absent: splitting a request over batches, and a model of how the batches of several
//! workers slow each other down on one device.
#![forbid(unsafe_code)]

mod action;
mod adaptive;
mod batcher;
mod capacity;
mod config;
mod event;
mod fifo;
mod findings;
mod forecast;
mod gpu_choice;
mod held;
mod learned;
mod memory_plan;
mod padding;
mod policy;
mod queue;
mod records;
mod recovery;
mod request;
mod retry;
mod running;
mod shadow_room;
mod state;
mod workers;

pub use action::{Action, Actions, Dispatch, DispatchReason, MemberRange, Rejection};
pub use adaptive::{Decision, DecisionKind};
pub use batcher::Batcher;
pub use capacity::{Capacity, CapacityFacts, LOOK_EVERY, WantedWorkers};
pub use config::{Adaptive, Config, Measure, Policy};
pub use event::{BatchFailure, DownReason, Event};
pub use findings::Findings;
pub use gpu_choice::{GpuChoice, GpuRoom};
pub use learned::{CurvePoint, WaitScore};
pub use memory_plan::{
    AskedRate, FirstLoad, LoadStep, MemoryPlan, MemoryState, ModelMemory, worth,
};
pub use padding::Padding;
pub use request::{BatchId, Nanos, Origin, OriginKind, Priority, Request, RequestId, WorkerId};
pub use shadow_room::{Occupancy, has_room_for_copy};
