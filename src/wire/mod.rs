//! Wire version 1: the byte layout of every datagram and record.
