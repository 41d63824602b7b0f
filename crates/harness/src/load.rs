//! Load with a log of what was acknowledged.
