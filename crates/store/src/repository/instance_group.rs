//! `instance_group` of a Triton configuration: how many workers, on the processor or on which GPUs.

use jitney_settings::model::{DEVICE_IDS, DEVICE_TYPE, MAX_WORKERS, WORKERS};
use jitney_settings::{SettingSource, Values};

use super::fields::unknown;
use super::text_format::{ConfigError, PbField};

/// Fields without effect, which tune Triton's scheduling of instances.
const WITHOUT_EFFECT: [&str; 4] = ["profile", "host_policy", "rate_limiter", "secondary_devices"];

/// All groups of a configuration.
#[derive(Debug, Default)]
pub(super) struct InstanceGroups {
    /// Instances; none where there is no group.
    count: Option<u32>,
    /// The GPUs that groups name, each as often as a worker is to have it.
    gpus: Vec<u32>,
    /// Whether each group so far says that it is the processor's.
    on_cpu: bool,
    /// Where a group asks for a GPU.
    asks_gpu: Option<usize>,
    remarks: Vec<String>,
}

impl InstanceGroups {
    /// Reads one group.
    pub(super) fn read(&mut self, field: &PbField) -> Result<(), ConfigError> {
        let (mut count, mut gpus, mut kind) = (1, Vec::new(), "KIND_AUTO");
        for inner in field.message()? {
            match inner.name.as_str() {
                "count" => count = inner.number::<u32>()?.max(1),
                "kind" => kind = inner.word()?,
                "gpus" => gpus.push(inner.number::<u32>()?),
                "name" => {}
                name if WITHOUT_EFFECT.contains(&name) => {
                    self.remarks.push(format!("line {}: {name} has no effect here", inner.line));
                }
                "passive" if !inner.is_true()? => {}
                "passive" => return Err(inner.wrong("passive instances are not supported")),
                _ => {
                    let known = ["count", "kind", "name", "gpus", "passive"];
                    return Err(unknown(inner, known.into_iter().chain(WITHOUT_EFFECT)));
                }
            }
        }
        if kind == "KIND_GPU" || !gpus.is_empty() {
            self.asks_gpu.get_or_insert(field.line);
        }
        self.on_cpu =
            kind == "KIND_CPU" && gpus.is_empty() && (self.on_cpu || self.count.is_none());
        // As many on each of its GPUs.
        let places = u32::try_from(gpus.len()).unwrap_or(u32::MAX).max(1);
        self.count = Some(self.count.unwrap_or(0).saturating_add(count.saturating_mul(places)));
        let most = usize::try_from(count).unwrap_or(usize::MAX).min(GPUS_MAX);
        let each = gpus.iter().flat_map(|gpu| std::iter::repeat_n(*gpu, most));
        self.gpus.extend(each.take(GPUS_MAX.saturating_sub(self.gpus.len())));
        Ok(())
    }

    /// What all groups say, as settings; what has no effect is told, which depends on whether it is an ONNX model.
    pub(super) fn set(
        mut self,
        onnx: bool,
        settings: &mut Values,
        source: &SettingSource,
    ) -> Vec<String> {
        if let Some(count) = self.count {
            settings.set(&WORKERS, count, source.clone());
            settings.set(&MAX_WORKERS, count, source.clone());
        }
        if self.on_cpu {
            settings.set(&DEVICE_TYPE, "cpu", source.clone());
        }
        if !self.gpus.is_empty() {
            let ids: Vec<String> = self.gpus.iter().map(u32::to_string).collect();
            settings.set(&DEVICE_IDS, ids.join(","), source.clone());
        }
        if let Some(line) = self.asks_gpu.filter(|_| onnx) {
            self.remarks.push(format!(
                "line {line}: an ONNX model runs on a GPU where the server's setting onnx_providers names cuda; \
                 instance_group does not choose that"
            ));
        }
        self.remarks
    }
}

/// GPUs at most that are named to the workers of one model.
const GPUS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::super::text_format::parse;
    use super::*;

    fn said(groups: &str, onnx: bool) -> (Values, Vec<String>) {
        let mut all = InstanceGroups::default();
        for field in parse(groups).expect("a text") {
            all.read(&field).expect("a group");
        }
        let mut settings = Values::default();
        let remarks = all.set(onnx, &mut settings, &SettingSource::Archive("f".to_owned()));
        (settings, remarks)
    }

    #[test]
    fn groups_become_workers_and_their_devices() {
        for (groups, workers, device, ids) in [
            ("instance_group { count: 2 kind: KIND_CPU }", "2", Some("cpu"), None),
            ("instance_group [ { kind: KIND_CPU }, { count: 2 kind: KIND_GPU } ]", "3", None, None),
            (
                "instance_group [ { count: 2 gpus: [ 0 ] }, { kind: KIND_GPU gpus: [ 1, 2 ] } ]",
                "4",
                None,
                Some("0,0,1,2"),
            ),
            ("instance_group { name: \"a\" }", "1", None, None),
        ] {
            let (settings, remarks) = said(groups, false);
            assert_eq!(settings.show(&WORKERS).as_deref(), Some(workers), "{groups}");
            assert_eq!(settings.show(&DEVICE_TYPE).as_deref(), device, "{groups}");
            assert_eq!(settings.show(&DEVICE_IDS).as_deref(), ids, "{groups}");
            assert_eq!(remarks, Vec::<String>::new(), "{groups}");
        }
    }

    #[test]
    fn what_a_group_says_without_effect_is_told() {
        let group = "instance_group { kind: KIND_GPU\n rate_limiter { priority: 2 } }";
        let (_, remarks) = said(group, false);
        assert_eq!(remarks, ["line 2: rate_limiter has no effect here"]);
        let (_, remarks) = said(group, true);
        assert_eq!(remarks.len(), 2, "{remarks:?}");
        assert!(remarks[1].contains("onnx_providers"), "{remarks:?}");
    }
}
