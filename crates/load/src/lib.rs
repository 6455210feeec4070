//! A load generator: sends requests at given times or as fast as they are answered, and counts what
//! became of them.
//!
//! It knows HTTP/1.1, HTTP/2 and gRPC, connections and pools, clocks and histograms. It reads no
//! flag, prints nothing, and knows nothing of the server beyond its protocols. HTTP/1.1 is written
//! by hand, since the generator must cost less than what it measures.

mod answer;
mod connection;
mod dial;
mod effort;
mod exact_timer;
mod http1;
mod http2;
mod latency_chart;
mod live;
mod load_url;
mod payload;
mod plan;
mod pool;
mod report;
mod response;
mod run;
mod shard;
mod tally;
mod tensors;
mod timeline;
mod tls;

pub use answer::{Ending, ExchangeFailure};
pub use dial::{LoadProtocol, Target};
pub use live::{LiveFigures, Stop};
pub use load_url::LoadUrl;
pub use payload::{PayloadDraft, RequestPayload};
pub use plan::{LoadMode, LoadPhase, LoadPlan, PoolPlan, ThinkTime, ThinkTimeKind};
pub use pool::PoolOrder;
pub use report::{GeneratorReport, LoadReport, PercentileReport, PhaseReport};
pub use run::{TrialAnswer, run, trial};
pub use tensors::{InputTensor, TensorSource, binary_body, infer_message, predictions_message};
pub use timeline::TimeSlotReport;
pub use tls::{TlsTrust, client_config};
