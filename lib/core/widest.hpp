#pragma once

/// Before a loop over elements: one binary runs on any x86-64, and the loader takes the widest clone. Lanes must be
/// elements, and products that are added want -ffp-contract=off: then no clone changes a bit.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define ARGOSY_WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ARGOSY_WIDEST
#endif
