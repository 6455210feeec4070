//! `PUT /models/{m}`: another number of workers, other batching, on the live model.

use jitney_engine::Reconfigure;
use jitney_settings::Dialect;
use jitney_settings::{check_parameters, from_parameters};

use super::models::notice;
use crate::errors::Problem;
use crate::management::{self, Scaling};
use crate::query::RequestFields;
use crate::respond::HttpResponse;
use crate::rest::context::RequestContext;
use crate::route::ModelRef;

/// A request that names only batching leaves the workers alone; one that names nothing wants one
/// worker, as in TorchServe.
pub(crate) async fn scale(
    context: &RequestContext<'_>,
    target: ModelRef<'_>,
) -> Result<HttpResponse, Problem> {
    let fields = context.query();
    if context.state.config.dialect == Dialect::Jitney {
        check_parameters(|name| fields.text(name), true).map_err(Problem::bad_request)?;
    }
    let version = target.version.or_else(|| fields.text("model_version"));
    let change = reconfigure(&fields)?;
    let range = range(&fields)?;
    let named = fields.text("min_worker").is_some() || fields.text("max_worker").is_some();
    let target = ModelRef { version, ..target };
    let workers = match fields.text("workers") {
        Some("auto") => Some(management::automatic_range(context.state, target)?),
        _ => (change.is_none() || named).then_some(range),
    };
    let scaling =
        Scaling { target, workers, change, synchronous: fields.boolean("synchronous", false) };
    management::scale(context.state, scaling).await.map(notice)
}

fn range(fields: &RequestFields) -> Result<(u32, u32), Problem> {
    management::range(workers(fields, "min_worker")?, workers(fields, "max_worker")?)
}

fn reconfigure(fields: &RequestFields) -> Result<Option<Reconfigure>, Problem> {
    let settings = from_parameters(|name| fields.text(name), true).map_err(Problem::bad_request)?;
    let change = Reconfigure { endpoint: fields.text("endpoint").map(str::to_owned), settings };
    Ok((change != Reconfigure::default()).then_some(change))
}

/// A number of workers; a negative one is the caller's mistake.
fn workers(fields: &RequestFields, name: &str) -> Result<Option<u32>, Problem> {
    let negative = |_| Problem::bad_request(format!("{name} must not be negative."));
    fields.integer(name).map(|count| u32::try_from(count).map_err(negative)).transpose()
}

#[cfg(test)]
mod tests {
    use jitney_settings::model::{MAX_BATCH_DELAY, MAX_BATCH_SIZE, TENANTS};

    use super::*;

    fn fields(query: &str) -> RequestFields {
        RequestFields::from_query(Some(query))
    }

    #[test]
    fn a_range_is_read_by_torchserves_rules() {
        for (query, expected) in [
            ("", Ok((1, 1))),
            ("min_worker=3", Ok((3, 3))),
            ("min_worker=0&max_worker=0", Ok((0, 0))),
            ("min_worker=two", Ok((1, 1))),
            ("max_worker=4", Ok((1, 4))),
            ("min_worker=2&max_worker=1", Err("max_worker cannot be less than min_worker.")),
            ("min_worker=-1", Err("min_worker must not be negative.")),
        ] {
            let range = range(&fields(query)).map_err(|problem| problem.message);
            assert_eq!(range, expected.map_err(str::to_owned), "{query}");
        }
    }

    #[test]
    fn a_request_that_names_no_batching_changes_none() {
        assert!(reconfigure(&fields("min_worker=2&batch_size=-1")).unwrap().is_none());
        let change = reconfigure(&fields("max_batch_delay=0")).unwrap().unwrap();
        assert!(!change.settings.has(&MAX_BATCH_SIZE));
        assert_eq!(change.settings.show(&MAX_BATCH_DELAY).as_deref(), Some("0"));
        assert!(reconfigure(&fields("policy=")).is_err());
        let change = reconfigure(&fields("tenants=gold:4,trial:1")).unwrap().unwrap();
        assert_eq!(change.settings.show(&TENANTS).as_deref(), Some("gold:4,trial:1"));
        let change = reconfigure(&fields("tenants=")).unwrap().unwrap();
        assert_eq!(change.settings.show(&TENANTS).as_deref(), Some(""));
        assert!(reconfigure(&fields("tenants=gold")).is_err());
    }
}
