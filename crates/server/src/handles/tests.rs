//! The byte vectors of `protocol/handles.json`, which the Python side tests too.
