//! May a copy of a request be sent to a version that is only compared? Copies give way to everything. Pure: how busy both
//! versions are comes as an argument.

/// How busy a version is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Occupancy {
    /// Whether a worker serves.
    pub ready: bool,
    /// Requests that wait.
    pub waiting: u32,
    /// The most items in a batch.
    pub batch_max: u32,
    /// Workers that run a batch, as far as the requests under way tell.
    pub busy: u64,
    /// Whether its workers run on GPUs, so that processors are not what they compute with.
    pub on_gpu: bool,
}

/// Whether a copy may be sent: no more requests wait, for the shadow or for the version that answers, than a batch
/// takes, and a processor is idle on which the copy can run.
pub fn has_room_for_copy(shadow: Occupancy, answering: Occupancy, processors: u64) -> bool {
    let crowded = |it: Occupancy| it.waiting >= it.batch_max.max(1);
    let idle = shadow.on_gpu || shadow.busy + answering.busy < processors;
    shadow.ready && !crowded(shadow) && !crowded(answering) && idle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_sent_only_where_nobody_waits_for_it() {
        let idle = Occupancy { ready: true, batch_max: 4, ..Occupancy::default() };
        let with = |edit: fn(&mut Occupancy)| {
            let mut it = idle;
            edit(&mut it);
            it
        };
        assert!(has_room_for_copy(idle, idle, 2));
        assert!(has_room_for_copy(with(|it| it.waiting = 3), with(|it| it.waiting = 3), 2));
        assert!(!has_room_for_copy(with(|it| it.waiting = 4), idle, 2), "the shadow is busy");
        assert!(!has_room_for_copy(idle, with(|it| it.waiting = 4), 2), "the other version is");
        assert!(!has_room_for_copy(with(|it| it.ready = false), idle, 2), "it is not loaded");
        assert!(has_room_for_copy(with(|it| it.busy = 1), idle, 2));
        assert!(
            !has_room_for_copy(with(|it| it.busy = 1), with(|it| it.busy = 1), 2),
            "no processor"
        );
        let on_gpu = with(|it| it.on_gpu = true);
        assert!(has_room_for_copy(on_gpu, with(|it| it.busy = 2), 2), "it needs none");
        let single = with(|it| it.batch_max = 0);
        assert!(has_room_for_copy(single, single, 1));
    }
}
