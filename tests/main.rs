//! Tests of the built product.

mod multicast;
