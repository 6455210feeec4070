//! Platforms by their variables, and what those set.

use jitney_settings::{Setting, Values, model, server};

use super::*;

fn found(env: &Env, folder: &str) -> Result<Option<(Platform, String)>, String> {
    let detected = detect(None, env, |path| path == Path::new(folder));
    detected.map(|it| it.map(|it| (it.platform, it.by))).map_err(|failure| failure.message)
}

#[test]
fn a_platform_is_known_by_its_variables_and_folders() {
    for (variables, folder, expected) in [
        (vec![], "", None),
        (
            vec![("SAGEMAKER_PROGRAM", "inference.py")],
            "",
            Some((Platform::Sagemaker, "SAGEMAKER_PROGRAM")),
        ),
        (vec![("SAGEMAKER_PROGRAM", "")], "", None),
        (
            vec![("PORT", "8080"), ("SAGEMAKER_MULTI_MODEL", "true")],
            "",
            Some((Platform::Sagemaker, "SAGEMAKER_MULTI_MODEL")),
        ),
        (vec![("PORT", "8080")], "/opt/ml/model", Some((Platform::Sagemaker, "/opt/ml/model"))),
        (vec![("PORT", "8080")], "", Some((Platform::Port, "PORT"))),
        (vec![("PORT", "tcp://10.0.0.1:80")], "", None),
        (vec![("PORT", "8080"), ("K_SERVICE", "x")], "", Some((Platform::CloudRun, "K_SERVICE"))),
        (vec![("K_SERVICE", "x")], "", None),
        (
            vec![("ECS_CONTAINER_METADATA_URI_V4", "x"), ("PORT", "80")],
            "",
            Some((Platform::Ecs, "ECS_CONTAINER_METADATA_URI_V4")),
        ),
        (vec![("AIP_MODE", "PREDICTION")], "", Some((Platform::Vertex, "AIP_MODE"))),
        (vec![("AIP_MODE", "TRAINING")], "", None),
        (vec![("PORT", "80")], "/repository", Some((Platform::HuggingFace, "/repository"))),
        (
            vec![("AIP_MODE", "PREDICTION"), ("HF_TASK", "fill-mask")],
            "",
            Some((Platform::Vertex, "AIP_MODE with HF_TASK")),
        ),
        (
            vec![("HF_TASK", "fill-mask")],
            "/opt/ml/model",
            Some((Platform::Sagemaker, "/opt/ml/model with HF_TASK")),
        ),
        (
            vec![("SAGEMAKER_PROGRAM", "x"), ("HF_MODEL_ID", "org/model")],
            "",
            Some((Platform::Sagemaker, "SAGEMAKER_PROGRAM")),
        ),
    ] {
        let env = variables.iter().fold(Env::default(), |env, (name, value)| env.with(name, value));
        let expected = expected.map(|(platform, by)| (platform, by.to_owned()));
        assert_eq!(found(&env, folder), Ok(expected), "{variables:?} {folder}");
    }
}

#[test]
fn who_asks_for_a_platform_gets_it() {
    let env = Env::from([("SAGEMAKER_PROGRAM", "x"), ("JITNEY_PLATFORM", "none")]);
    let asked_for = |flag| asked(flag, &env).and_then(|it| detect(it, &env, |_| false));
    assert_eq!(asked_for(None).expect("reads"), None);
    let by_flag = asked_for(Some(Platform::Port)).expect("reads").map(|it| it.platform);
    assert_eq!(by_flag, Some(Platform::Port));
    let env = Env::from([("JITNEY_PLATFORM", "heroku")]);
    let expected = "JITNEY_PLATFORM must be one of sagemaker, vertex, azure-ml, mlserver, hugging-face, cloud-run, ecs, port, none, not \"heroku\"";
    assert_eq!(asked(None, &env).expect_err("rejected").message, expected);
}

fn planned(env: &Env) -> PlatformPlan {
    let detected = detect(None, env, |_| false).expect("reads").expect("a platform");
    read(&detected, env).expect("reads")
}

fn shown(values: &Values, settings: &[&Setting]) -> Vec<Option<String>> {
    settings.iter().map(|setting| values.show(setting)).collect()
}

#[test]
fn sagemakers_variables_become_settings() {
    let dir = tempfile::tempdir().expect("directory");
    let base = dir.path().to_str().expect("text");
    let env = Env::from([
        ("SAGEMAKER_BASE_DIR", base),
        ("SAGEMAKER_BIND_TO_PORT", "9001"),
        ("SAGEMAKER_SAFE_PORT_RANGE", "9000-9004"),
        ("SAGEMAKER_MODEL_SERVER_WORKERS", "7"),
        ("SAGEMAKER_TS_MIN_WORKERS", "2"),
        ("SAGEMAKER_TS_MAX_WORKERS", "3"),
        ("SAGEMAKER_TS_BATCH_SIZE", "8"),
        ("SAGEMAKER_MODEL_SERVER_TIMEOUT", "30"),
        ("SAGEMAKER_MAX_PAYLOAD_IN_MB", "20"),
        ("SAGEMAKER_CONTAINER_LOG_LEVEL", "30"),
        ("TS_JOB_QUEUE_SIZE", "17"),
    ]);
    let settings = [
        &server::INFERENCE_PORT,
        &server::MANAGEMENT_PORT,
        &server::METRICS_PORT,
        &model::WORKERS,
        &model::MAX_WORKERS,
        &model::MAX_BATCH_SIZE,
        &model::RESPONSE_TIMEOUT,
        &server::MAX_REQUEST_SIZE,
        &server::LOG_LEVEL,
        &model::QUEUE,
    ];
    let values = shown(&planned(&env).above, &settings);
    let values: Vec<&str> = values.iter().map(|it| it.as_deref().unwrap_or("-")).collect();
    assert_eq!(values, ["9001", "9000", "9002", "2", "3", "8", "30", "20971520", "warn", "17"]);
}

#[test]
fn a_wrong_variable_is_named_with_what_it_must_be() {
    for (name, value) in [
        ("SAGEMAKER_BIND_TO_PORT", "many"),
        ("SAGEMAKER_SAFE_PORT_RANGE", "9000"),
        ("SAGEMAKER_SAFE_PORT_RANGE", "9000-9001"),
        ("SAGEMAKER_MAX_PAYLOAD_IN_MB", "-1"),
        ("SAGEMAKER_CONTAINER_LOG_LEVEL", "loud"),
        ("SAGEMAKER_TS_BATCH_SIZE", "0"),
    ] {
        let env = Env::from([("SAGEMAKER_PROGRAM", "x"), (name, value)]);
        let detected = Detected { platform: Platform::Sagemaker, by: String::new() };
        let failure = read(&detected, &env).expect_err("rejected");
        assert!(failure.message.starts_with(name) && failure.code == 64, "{failure}");
    }
}

#[test]
fn one_model_is_the_folder_and_many_have_a_store() {
    let dir = tempfile::tempdir().expect("directory");
    std::fs::create_dir(dir.path().join("model")).expect("folder");
    let base = dir.path().to_str().expect("text");
    let one = planned(&Env::from([("SAGEMAKER_BASE_DIR", base)]));
    assert_eq!(one.models.len(), 1);
    assert_eq!(one.sagemaker, Some(SagemakerRole::OneModel));
    let many =
        planned(&Env::from([("SAGEMAKER_BASE_DIR", base), ("SAGEMAKER_MULTI_MODEL", "true")]));
    assert_eq!((many.models.len(), many.sagemaker), (0, Some(SagemakerRole::ManyModels)));
    assert!(dir.path().join("models").is_dir());
}

#[test]
fn defaults_are_those_of_the_platform() {
    let settings = [&server::INFERENCE_PORT, &server::DRAIN_TIMEOUT, &model::RESPONSE_TIMEOUT];
    for (variables, expected) in [
        (vec![("SAGEMAKER_PROGRAM", "x")], ["8080", "25", "60"]),
        (vec![("AIP_MODE", "PREDICTION")], ["8080", "25", "-"]),
        (vec![("AIP_MODE", "PREDICTION"), ("HF_TASK", "x")], ["8080", "25", "-"]),
        (vec![("AZUREML_MODEL_DIR", "/none")], ["-", "25", "180"]),
        (vec![("HF_TASK", "fill-mask"), ("PORT", "80")], ["5000", "-", "-"]),
        (vec![("PORT", "80"), ("K_SERVICE", "x")], ["-", "8", "300"]),
        (vec![("ECS_CONTAINER_METADATA_URI_V4", "x"), ("PORT", "tcp://a")], ["-", "25", "-"]),
    ] {
        let env = variables.iter().fold(Env::default(), |env, (name, value)| env.with(name, value));
        let values = shown(&planned(&env).below, &settings);
        let values: Vec<&str> = values.iter().map(|it| it.as_deref().unwrap_or("-")).collect();
        assert_eq!(values, expected, "{variables:?}");
    }
}

#[test]
fn a_port_that_is_not_the_platforms_is_remarked_on() {
    for (variables, expected) in [
        (vec![("AIP_MODE", "PREDICTION"), ("AIP_HTTP_PORT", "9000")], "AIP_HTTP_PORT=9000"),
        (vec![("SAGEMAKER_PROGRAM", "x")], "8080"),
        (vec![("HF_TASK", "fill-mask")], "5000"),
    ] {
        let env = variables.iter().fold(Env::default(), |env, (name, value)| env.with(name, value));
        let detected = detect(None, &env, |_| false).expect("reads").expect("a platform");
        let mut plan = read(&detected, &env).expect("reads");
        let flag = jitney_settings::SettingSource::Flag("--port".to_owned());
        let values = Values::default().with(&server::INFERENCE_PORT, 1234_u64, flag);
        plan.describe(&detected, &values);
        let remark = plan.remarks.last().map(String::as_str).unwrap_or_default();
        assert!(remark.ends_with(&format!("is not the platform's: {expected}")), "{remark}");
    }
}

#[test]
fn hugging_faces_variables_count_beside_sagemakers() {
    let dir = tempfile::tempdir().expect("directory");
    let base = dir.path().canonicalize().expect("a folder");
    let model = base.join("model");
    std::fs::create_dir(&model).expect("made");
    let base = base.to_string_lossy().into_owned();
    let named =
        [("HF_MODEL_ID", "org/net"), ("HF_TASK", "fill-mask"), ("SAGEMAKER_BASE_DIR", &*base)];
    let env = Env::from(named);
    let url = |plan: PlatformPlan| plan.models.first().map(|model| model.url.clone());
    assert_eq!(url(planned(&env)).as_deref(), Some("hf:org/net"), "the folder is empty");
    std::fs::write(model.join("config.json"), "{}").expect("written");
    let plan = planned(&env);
    let task = plan.above.show(&model::TASK);
    assert_eq!(task.as_deref(), Some("fill-mask"));
    assert_eq!(url(plan).as_deref(), Some(&*model.to_string_lossy()));
    let many = planned(&env.with("SAGEMAKER_MULTI_MODEL", "true"));
    assert!(many.models.is_empty() && !many.above.has(&model::TASK), "clients name them");
}
