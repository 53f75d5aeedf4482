// Builds and reads the messages of a session, for tests.
#ifndef WEFT_WORKER_SERVICE_SESSION_TESTUTIL_H_
#define WEFT_WORKER_SERVICE_SESSION_TESTUTIL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "weft/worker/v1/worker_control_service.pb.h"
#include "worker/service/outbox.h"

namespace weft::service {

// A Prepare of job "tiny-1", epoch 7, rank 1 of 2, three steps, whose artifacts
// go to a fresh folder of the test's own.
worker::v1::Prepare TinyPrepare();

// The messages that answer `prepare`, as the coordinator would send them.
worker::v1::RendezvousComplete AllAddresses(const worker::v1::Prepare& prepare);
worker::v1::Start StartOf(const worker::v1::Prepare& prepare);
worker::v1::Stop StopOf(const worker::v1::Prepare& prepare,
                        const std::string& reason);

// Takes the next message out of the box; an empty one after 30 s.
worker::v1::AttachRequest Take(Outbox& outbox);

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_SESSION_TESTUTIL_H_
