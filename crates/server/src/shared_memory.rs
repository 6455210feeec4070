//! Shared memory of clients on the same machine: regions that they register by name, from which the tensors
//! of their requests are read and into which those of the answers are written.
//!
//! It is off unless the operator allows it, because a client can name any object that the server's own user
//! may open: it could have the memory of another program read into a model that repeats it, or have answers
//! written over it. Whoever may predict may do that, so every client has to be trusted as much as the
//! server. What no client can do:
//!
//! - reach anything outside of `/dev/shm`: a key is one name there, links are not followed, and what is not
//!   a regular file is not opened;
//! - harm the server by changing an object: bytes are copied by `pread` and `pwrite`, never mapped, so an
//!   object that became shorter is a bad request and no signal;
//! - make the server hold more than it may: regions are counted, and what is read takes its share of the
//!   memory for requests first.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use jitney_engine::admission::{Admission, CutReason, HeldBytes};
use rustix::fs::OFlags;

use crate::errors::{ErrorCode, Problem};

/// Where the system keeps objects of shared memory.
const DIRECTORY: &str = "/dev/shm";
/// Regions at a time; each holds an open file.
const REGIONS_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 255;

/// The regions that clients registered.
pub(crate) struct SharedMemory {
    directory: PathBuf,
    regions: Mutex<BTreeMap<Box<str>, Arc<SharedRegion>>>,
}

/// A part of an object, by the name that a client gave it.
#[derive(Debug)]
pub(crate) struct SharedRegion {
    pub(crate) name: Box<str>,
    pub(crate) key: Box<str>,
    /// Where it begins in the object.
    pub(crate) offset: u64,
    pub(crate) size: u64,
    object: File,
}

/// The bytes of one tensor in a region.
#[derive(Clone, Debug)]
pub(crate) struct SharedRange {
    region: Arc<SharedRegion>,
    /// Where it begins in the object.
    start: u64,
    size: u64,
}

impl SharedMemory {
    pub(crate) fn new() -> Self {
        Self::below(Path::new(DIRECTORY))
    }

    fn below(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), regions: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Arc<SharedRegion>>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a part of an object under a name that is free.
    ///
    /// # Errors
    /// The name is taken, the object cannot be opened, it is too short, or there are too many regions.
    pub(crate) fn register(
        &self,
        name: &str,
        key: &str,
        offset: u64,
        size: u64,
    ) -> Result<(), Problem> {
        let fail = |why: String| {
            Problem::bad_request(format!("Shared memory region {name:?} was not registered: {why}"))
        };
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(fail(format!("a name has 1 to {NAME_BYTES_MAX} bytes.")));
        }
        let object = self.open(key).map_err(|why| fail(format!("{key:?} {why}.")))?;
        let there = object.metadata().map_or(0, |metadata| metadata.len());
        if size == 0 || offset.checked_add(size).is_none_or(|end| end > there) {
            let part = format!("{size} bytes from {offset}");
            return Err(fail(format!("{key:?} has {there} bytes, which do not hold {part}.")));
        }
        let mut regions = self.lock();
        if regions.contains_key(name) {
            let message = format!("Shared memory region {name:?} is registered already.");
            return Err(Problem::new(ErrorCode::Conflict, message));
        }
        if regions.len() >= REGIONS_MAX {
            return Err(fail(format!("there are {REGIONS_MAX} already; unregister some first.")));
        }
        let region = SharedRegion { name: name.into(), key: key.into(), offset, size, object };
        regions.insert(name.into(), Arc::new(region));
        Ok(())
    }

    /// Opens the object of a key, or says why not.
    fn open(&self, key: &str) -> Result<File, String> {
        let name = key.strip_prefix('/').unwrap_or(key);
        let plain = !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && !name.starts_with('.')
            // Semaphores live in the same directory.
            && !name.starts_with("sem.")
            && !name.contains(['/', '\0']);
        if !plain {
            return Err("is not the key of a shared memory object".to_owned());
        }
        // Links are not followed, and opening never waits.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags);
        let path = self.directory.join(name);
        let object = match options.clone().write(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => options.open(&path),
            object => object,
        };
        let object = object.map_err(|error| format!("cannot be opened: {error}"))?;
        let is_plain = object.metadata().is_ok_and(|metadata| metadata.is_file());
        is_plain.then_some(object).ok_or_else(|| "is not a shared memory object".to_owned())
    }

    /// Forgets a region; all of them if the name is empty. One that is in use stays open until then.
    pub(crate) fn unregister(&self, name: &str) {
        let mut regions = self.lock();
        if name.is_empty() {
            regions.clear();
        } else {
            regions.remove(name);
        }
    }

    /// The region of this name; all of them if it is empty.
    ///
    /// # Errors
    /// There is no such region.
    pub(crate) fn status(&self, name: &str) -> Result<Vec<Arc<SharedRegion>>, Problem> {
        if name.is_empty() {
            return Ok(self.lock().values().map(Arc::clone).collect());
        }
        self.region(name).map(|region| vec![region])
    }

    fn region(&self, name: &str) -> Result<Arc<SharedRegion>, Problem> {
        self.lock().get(name).map(Arc::clone).ok_or_else(|| {
            let message = format!("Shared memory region {name:?} is not registered.");
            Problem::new(ErrorCode::ModelNotFound, message)
        })
    }

    /// The bytes of a tensor: so many from `offset` of the region.
    ///
    /// # Errors
    /// There is no such region, or it is too small.
    pub(crate) fn range(&self, name: &str, offset: u64, size: u64) -> Result<SharedRange, Problem> {
        let region = self.region(name).map_err(|problem| Problem::bad_request(problem.message))?;
        if offset.checked_add(size).is_none_or(|end| end > region.size) {
            return Err(Problem::bad_request(format!(
                "Shared memory region {name:?} has {} bytes, which do not hold {size} bytes from {offset}.",
                region.size
            )));
        }
        Ok(SharedRange { start: region.offset + offset, size, region })
    }
}

impl SharedRange {
    /// A copy of the bytes.
    ///
    /// # Errors
    /// The object became shorter, or cannot be read.
    fn read(&self) -> Result<Bytes, Problem> {
        let size = usize::try_from(self.size).map_err(|_| self.failed("it is too large"))?;
        let mut bytes = vec![0; size];
        let read = self.region.object.read_exact_at(&mut bytes, self.start);
        read.map_err(|error| self.failed_by(&error))?;
        Ok(Bytes::from(bytes))
    }

    /// Writes the bytes of an output to the beginning.
    ///
    /// # Errors
    /// They do not fit, the object became shorter, or it cannot be written.
    pub(crate) fn write(&self, output: &str, bytes: &[u8]) -> Result<(), Problem> {
        let needed = bytes.len() as u64;
        if needed > self.size {
            return Err(Problem::bad_request(format!(
                "Output {output:?} has {needed} bytes and does not fit into the {} bytes of shared memory \
                 that the request names for it.",
                self.size
            )));
        }
        let object = &self.region.object;
        // Writing beyond the end would make the object longer.
        let there = object.metadata().map_or(0, |metadata| metadata.len());
        if there < self.start + needed {
            return Err(self.failed("its object became shorter"));
        }
        object.write_all_at(bytes, self.start).map_err(|error| self.failed_by(&error))
    }

    fn failed_by(&self, error: &io::Error) -> Problem {
        if error.kind() == ErrorKind::UnexpectedEof {
            return self.failed("its object became shorter");
        }
        self.failed(&error.to_string())
    }

    fn failed(&self, why: &str) -> Problem {
        let name = &self.region.name;
        Problem::bad_request(format!("Shared memory region {name:?} cannot be used: {why}."))
    }
}

/// What one request reads: no more than a request may bring, and only what there is memory for.
pub(crate) struct SharedReader<'a> {
    memory: Option<&'a SharedMemory>,
    admission: &'a Arc<Admission>,
    /// Bytes that the request may still bring.
    left: u64,
    limit: u64,
    /// The memory of what was read.
    held: Vec<HeldBytes>,
}

impl<'a> SharedReader<'a> {
    pub(crate) fn new(
        memory: Option<&'a SharedMemory>,
        admission: &'a Arc<Admission>,
        limit: u64,
    ) -> Self {
        Self { memory, admission, left: limit, limit, held: Vec::new() }
    }

    /// The bytes of a tensor.
    ///
    /// # Errors
    /// There is no such region, it is too small, or the request brings too much.
    pub(crate) fn read(&mut self, name: &str, offset: u64, size: u64) -> Result<Bytes, Problem> {
        let range = allowed(self.memory)?.range(name, offset, size)?;
        self.left = self.left.checked_sub(size).ok_or_else(|| Problem::too_large(self.limit))?;
        let held = self.admission.hold(size).map_err(|_| Problem::cut(CutReason::Room))?;
        self.held.push(held);
        range.read()
    }

    /// The memory of what was read.
    pub(crate) fn into_held(self) -> Vec<HeldBytes> {
        self.held
    }
}

/// The memory that clients share, where that is allowed.
///
/// # Errors
/// It is not.
pub(crate) fn allowed(memory: Option<&SharedMemory>) -> Result<&SharedMemory, Problem> {
    memory.ok_or_else(|| {
        Problem::bad_request(
            "Shared memory is off. It is for trusted clients on the same machine; the operator turns it on \
             with allow_client_shared_memory.",
        )
    })
}

/// No region of CUDA memory is registered.
///
/// # Errors
/// One is named.
pub(crate) fn no_cuda_region(name: &str) -> Result<(), Problem> {
    if name.is_empty() {
        return Ok(());
    }
    let message = format!("CUDA shared memory region {name:?} is not registered.");
    Err(Problem::new(ErrorCode::ModelNotFound, message))
}

/// The answer to who would share memory of a GPU.
pub(crate) fn no_cuda_sharing() -> Problem {
    Problem::bad_request(
        "CUDA memory cannot be shared with this server. Use system shared memory instead.",
    )
}

#[cfg(test)]
mod tests {
    use jitney_engine::admission::AdmissionLimits;

    use super::*;

    fn here() -> (tempfile::TempDir, SharedMemory) {
        let directory = tempfile::tempdir().unwrap();
        let memory = SharedMemory::below(directory.path());
        (directory, memory)
    }

    #[test]
    fn tensors_are_read_and_written_inside_their_region() {
        let (directory, memory) = here();
        let path = directory.path().join("object");
        std::fs::write(&path, b"0123456789").unwrap();
        memory.register("r", "/object", 2, 6).unwrap();
        assert_eq!(memory.range("r", 1, 3).unwrap().read().unwrap(), "345");
        let out = memory.range("r", 4, 2).unwrap();
        out.write("y", b"ab").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"012345ab89");
        let large = out.write("y", b"abc").unwrap_err();
        assert!(large.message.contains("\"y\" has 3 bytes"), "{}", large.message);
        for (offset, size) in [(4, 3), (7, 0), (u64::MAX, 2), (0, u64::MAX)] {
            assert_eq!(memory.range("r", offset, size).unwrap_err().status, 400);
        }
        assert_eq!(memory.range("other", 0, 1).unwrap_err().status, 400);
    }

    #[test]
    fn an_object_that_became_shorter_is_a_bad_request_and_grows_no_more() {
        let (directory, memory) = here();
        let path = directory.path().join("object");
        std::fs::write(&path, vec![0; 4 << 20]).unwrap();
        memory.register("r", "object", 0, 4 << 20).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
        for size in [1 << 10, 4 << 20] {
            let range = memory.range("r", 0, size).unwrap();
            let short = range.read().unwrap_err();
            assert!(short.status == 400 && short.message.contains("shorter"), "{}", short.message);
            let bytes = vec![0; usize::try_from(size).unwrap()];
            assert_eq!(range.write("y", &bytes).unwrap_err().status, 400);
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 100);
    }

    #[test]
    fn keys_name_plain_objects_in_one_directory() {
        let (directory, memory) = here();
        std::fs::write(directory.path().join("sem.lock"), [0; 32]).unwrap();
        std::fs::create_dir(directory.path().join("directory")).unwrap();
        std::os::unix::fs::symlink("/proc/self/environ", directory.path().join("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            directory.path().join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for key in [
            "",
            "/",
            "..",
            "/..",
            "../etc/passwd",
            "//etc/passwd",
            "/a/b",
            "a/../b",
            ".hidden",
            "a\0b",
            "missing",
            "sem.lock",
            "directory",
            "link",
            "pipe",
            &long,
        ] {
            assert_eq!(memory.register("r", key, 0, 1).unwrap_err().status, 400, "{key:?}");
        }
        assert!(memory.status("").unwrap().is_empty());
    }

    #[test]
    fn a_request_reads_no_more_than_it_may_bring() {
        let (directory, memory) = here();
        std::fs::write(directory.path().join("object"), [7; 1000]).unwrap();
        memory.register("r", "object", 0, 1000).unwrap();
        let limits = AdmissionLimits { bytes: 1500, ..AdmissionLimits::default() };
        let admission = Admission::new(limits);
        let mut reader = SharedReader::new(Some(&memory), &admission, 1200);
        assert_eq!(reader.read("r", 0, 1000).unwrap().len(), 1000);
        assert_eq!(reader.read("r", 0, 201).unwrap_err().status, 413);
        let mut other = SharedReader::new(Some(&memory), &admission, 1200);
        assert_eq!(other.read("r", 0, 600).unwrap_err().code, ErrorCode::NoRoom);
        drop((reader, other));
        assert_eq!(admission.bytes(), 0);
        assert!(SharedReader::new(None, &admission, 1200).read("r", 0, 1).is_err());
    }

    #[test]
    fn regions_are_counted_and_can_be_unregistered() {
        let (directory, memory) = here();
        std::fs::write(directory.path().join("object"), [0; 8]).unwrap();
        for (offset, size) in [(0, 0), (0, 9), (8, 1), (u64::MAX, 2)] {
            assert_eq!(memory.register("r", "object", offset, size).unwrap_err().status, 400);
        }
        for number in 0..REGIONS_MAX {
            memory.register(&number.to_string(), "object", 0, 8).unwrap();
        }
        assert!(memory.register("one more", "object", 0, 8).is_err());
        assert_eq!(memory.register("7", "object", 0, 8).unwrap_err().status, 409);
        assert_eq!(memory.status("7").unwrap()[0].size, 8);
        memory.unregister("7");
        assert_eq!(memory.status("7").unwrap_err().status, 404);
        memory.unregister("7");
        assert_eq!(memory.status("").unwrap().len(), REGIONS_MAX - 1);
        memory.unregister("");
        assert!(memory.status("").unwrap().is_empty());
    }
}
