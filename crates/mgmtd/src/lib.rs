//! mgmtd
