//! metad
