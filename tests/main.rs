//! Tests of the built product.
