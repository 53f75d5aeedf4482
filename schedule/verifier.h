// Verifier: proves a program before anything runs it.
//
// Uses only the program, the declaration and the units. What a strategy asks
// for it reads where the runtime does (WeightsResident and GradientPaths of
// program.h); beyond that it shares no code with the compiler, so that a fault
// there cannot hide here.
#ifndef WEFT_SCHEDULE_VERIFIER_H_
#define WEFT_SCHEDULE_VERIFIER_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "fsdp/unit/unit.h"
#include "model/declaration.h"
#include "schedule/program.h"

namespace weft::schedule {

// Proves, or returns INTERNAL naming the op or value of the first failed proof:
//
//   shape      every index is in range, every op carries what its declaration
//              asks for, on the stream of its resource; every value has the
//              size and the space of what it is an instance of; waits point
//              backwards
//   coverage   every phase of every node runs exactly once a microbatch; no
//              value is tapped twice
//   residency  every parameter read happens after the gather of its bucket and
//              before the release, whatever the stream; what is gathered is
//              released (entry state equals exit state)
//   gradients  every gradient is written as often as declared, the first time
//              overwriting and then adding; what is written is what is reduced,
//              as often as the strategy says, after the last write and before
//              the control op; every bucket is optimized once, after the
//              control op, and none in a replay
//   values     every value is written before it is read, it lies aligned in its
//              arena, and its memory is taken by another only after its last
//              use
//   slots      with slots, every gathered bucket of a layer lies at the
//   beginning
//              of one and nothing else in any of them (that a slot is taken
//              after its last reader is a proof of values)
//   agreement  over the joint graph of all ranks, each collective one node,
//              with streams, waits, the launching thread and the launch order
//              of collectives as edges, there is no cycle (all ranks run this
//              one program, so their collectives have one order)
//
// Any program may be given: the proofs read nothing out of range.
// Requires: units.buckets[i].id is i, as AssignUnits makes them.
absl::Status VerifyProgram(const Program& program,
                           const model::ModelDecl& model,
                           const fsdp::UnitAssignment& units);

// Proves what the ranks of a job run together: each program as VerifyProgram
// does, ranks that share one sharing its proof, and, of different programs,
//
//   agreement  the members of every group issue the same collectives in the
//              same order; over the joint graph of all ranks, as above, there
//              is no cycle. Its last kind of edges means that all ranks launch
//              collectives in one order, whatever their communicators, as NCCL
//              demands
//
// INTERNAL, naming ranks and ops. The joint graph of different programs has a
// vertex for every op of every rank. Requires: by_rank has a program for every
// rank of `world`.
absl::Status VerifyRanks(absl::Span<const Program* const> by_rank,
                         const fsdp::World& world,
                         const model::ModelDecl& model,
                         const fsdp::UnitAssignment& units);

// Proves that a program which VerifyProgram proves taps every instance of these
// declared values, ascending, and nothing else. INTERNAL as above.
absl::Status VerifyTaps(const Program& program, absl::Span<const int> decls);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_VERIFIER_H_
