//! What is part of the key, and what is not.

use jitney_engine::call::SequenceRef;
use jitney_engine::call::{CallRoute, Claim, HeaderBlock, Origin, OriginKind, Parameter, Priority};

use super::*;
use crate::request_options::RequestOptions;
use crate::route::ModelRef;

/// A request with a body and one header.
fn request(body: &'static str, (name, value): (&str, &str)) -> InferenceRequest<'static> {
    let mut headers = HeaderBlock::new();
    headers.push(name, value.as_bytes());
    let parameter = |value: &'static str| Parameter {
        name: "body".into(),
        content_type: "a/b".into(),
        value: value.into(),
    };
    let (id, route) = (format!("{name}-{value}"), CallRoute::default());
    let input = Input { id, headers, route, parameters: vec![parameter(body)], tensors: None };
    InferenceRequest {
        target: ModelRef { model: "m", version: None },
        input: Box::new(input),
        origin: Origin { kind: OriginKind::Http, peer: 1 },
        options: RequestOptions {
            deadline: None,
            priority: Priority::Interactive,
            claim: Claim::default(),
        },
        client: None,
        key: None,
        quota: None,
        wait_for_queue: false,
        admitted: false,
        held: None,
        trace: None,
    }
}

fn plain() -> InferenceRequest<'static> {
    request("x", ("accept", "*/*"))
}

fn rule(text: &str) -> CacheRule {
    text.parse().unwrap()
}

fn key(request: &InferenceRequest<'_>, rule: &CacheRule) -> AnswerKey {
    CacheUse::of(request, rule).unwrap().key
}

#[test]
fn what_the_answer_depends_on_is_in_the_key_and_nothing_else() {
    let named = rule(r#"{"headers": ["X-Lang"]}"#);
    let same = key(&plain(), &named);
    assert_eq!(key(&request("x", ("user-agent", "other")), &named), same);
    let mut others = vec![
        request("y", ("accept", "*/*")),
        request("x", ("x-lang", "de")),
        request("x", ("x-lang", "en")),
        request("x", ("serve-multiplexed-model-id", "a")),
    ];
    others.extend((0..7).map(|change| {
        let mut request = plain();
        let input = &mut *request.input;
        match change {
            0 => input.parameters[0].name = "data".into(),
            1 => input.parameters[0].content_type = "text/plain".into(),
            2 => input.parameters.push(input.parameters[0].clone()),
            3 => input.route.endpoint = Some("".into()),
            4 => input.route.operation = Operation::Explain,
            5 => request.client = Some("ann"),
            _ => request.options.claim.tenant = Some("ann".into()),
        }
        request
    }));
    let mut keys: Vec<_> = others.iter().map(|other| key(other, &named).0).collect();
    keys.extend([same.0, key(&plain(), &rule(r#"{"shared": true}"#)).0]);
    let count = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), count, "all differ");
}

#[test]
fn clients_share_answers_only_where_the_rule_says_so() {
    let [mut ann, mut ben] = [plain(), plain()];
    (ann.client, ben.options.claim.tenant) = (Some("ann"), Some("ben".into()));
    let (own, shared) = (rule("{}"), rule(r#"{"shared": true}"#));
    assert_ne!(key(&ann, &own), key(&ben, &own));
    assert_eq!(key(&ann, &shared), key(&ben, &shared));
    let part = InferenceRequest { admitted: true, ..plain() };
    assert!(CacheUse::of(&part, &own).is_none() && CacheUse::of(&part, &shared).is_some());
}

#[test]
fn clients_say_whether_an_answer_may_be_old_or_kept() {
    let fresh = |value| {
        CacheUse::of(&request("x", ("Cache-Control", value)), &rule("{}")).map(|used| used.fresh)
    };
    assert_eq!(fresh("max-age=5"), Some(false));
    assert_eq!(fresh("max-age=0, No-Cache"), Some(true));
    assert_eq!(fresh("no-cache,no-store"), None);
}

#[test]
fn sequences_and_unparsed_requests_stay_outside() {
    let mut sequence = plain();
    sequence.input.route.sequence = Some(Box::new(SequenceRef::default()));
    let raw = request("x", (RAW_METHOD, "GET"));
    assert!([sequence, raw].iter().all(|request| CacheUse::of(request, &rule("{}")).is_none()));
}

#[test]
fn the_id_of_a_request_in_tensors_does_not_count_and_its_parameters_do() {
    let told = |text| key(&request("x", (TENSOR_REQUEST, text)), &rule("{}"));
    let first = told(r#"{"id": "1", "parameters": {"a": 1}}"#);
    assert_eq!(told(r#"{"id": "2", "parameters": {"a": 1}}"#), first);
    assert_ne!(told(r#"{"id": "1", "parameters": {"a": 2}}"#), first);
}

#[test]
fn no_two_rows_of_numbers_are_hashed_alike() {
    let numbers = [0, 1, 127, 128, 129, 255, 256, 16_383, 16_384, usize::MAX];
    let written = |row: &[usize]| {
        let mut key = KeyHasher { waiting: Vec::new(), hasher: None };
        row.iter().for_each(|number| key.count(*number));
        key.waiting
    };
    let pairs = numbers.iter().flat_map(|one| numbers.map(|other| written(&[*one, other])));
    let all: Vec<_> = numbers.iter().map(|one| written(&[*one])).chain(pairs).collect();
    let different: std::collections::HashSet<_> = all.iter().collect();
    assert_eq!((different.len(), written(&[127]).len()), (all.len(), 1));
}
