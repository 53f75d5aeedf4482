// A client and workers on the other end of a real connection.
#ifndef WEFT_COORDINATOR_SERVICE_TEST_CLIENT_H_
#define WEFT_COORDINATOR_SERVICE_TEST_CLIENT_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "weft/v1/cluster_service.grpc.pb.h"
#include "weft/v1/job_service.grpc.pb.h"
#include "weft/worker/v1/worker_control_service.grpc.pb.h"

namespace weft::coordinator {

// Longer than any call of a test takes.
inline void SetDeadline(grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::seconds(30));
}

// The BadRequest in the details of a refused call; empty when there is none.
inline google::rpc::BadRequest BadRequestOf(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::BadRequest bad_request;
  if (details.ParseFromString(status.error_details())) {
    for (const auto& any : details.details()) any.UnpackTo(&bad_request);
  }
  return bad_request;
}

// Calls JobService and ClusterService.
class TestClient {
 public:
  explicit TestClient(const std::string& address)
      : channel_(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
        jobs_(v1::JobService::NewStub(channel_)),
        cluster_(v1::ClusterService::NewStub(channel_)) {}

  grpc::Status Submit(const v1::TrainingJob& spec, v1::Job* job,
                      const std::string& request_id = "") {
    v1::SubmitJobRequest request;
    request.set_request_id(request_id);
    *request.mutable_job() = spec;
    v1::SubmitJobResponse response;
    grpc::Status status = Call([&](grpc::ClientContext* context) {
      return jobs_->SubmitJob(context, request, &response);
    });
    *job = response.job();
    return status;
  }
  v1::Job Get(const std::string& id) {
    v1::GetJobRequest request;
    request.set_job_id(id);
    v1::GetJobResponse response;
    Call([&](grpc::ClientContext* context) {
      return jobs_->GetJob(context, request, &response);
    });
    return response.job();
  }
  template <typename Invoke>
  grpc::Status Call(Invoke invoke) {
    grpc::ClientContext context;
    SetDeadline(&context);
    return invoke(&context);
  }

  // Sends one message to a method by name; returns the first answer's bytes.
  std::string CallRaw(const std::string& method, const std::string& request) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    SetDeadline(&context);
    grpc::CompletionQueue queue;
    auto stream = stub.PrepareCall(&context, method, &queue);
    const auto wait = [&] {
      void* tag;
      bool ok = false;
      queue.Next(&tag, &ok);
      return ok;
    };
    stream->StartCall(nullptr);
    wait();
    const grpc::Slice slice(request);
    stream->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(),
                      nullptr);
    wait();
    grpc::ByteBuffer response;
    stream->Read(&response, nullptr);
    const bool has_answer = wait();
    grpc::Status status;
    stream->Finish(&status, nullptr);
    wait();
    grpc::Slice bytes;
    if (!has_answer || !response.DumpToSingleSlice(&bytes).ok()) {
      return "status " + std::to_string(status.error_code());
    }
    return std::string(bytes.begin(), bytes.end());
  }

  v1::JobService::Stub& jobs() { return *jobs_; }
  v1::ClusterService::Stub& cluster() { return *cluster_; }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::JobService::Stub> jobs_;
  const std::unique_ptr<v1::ClusterService::Stub> cluster_;
};

// One stream of a worker that a test plays.
class TestWorker {
 public:
  // Opens the stream and says Register.
  TestWorker(const std::string& address, const std::string& id,
             uint64_t incarnation = 1, int protocol_version = 1)
      : stub_(worker::v1::WorkerControlService::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {
    SetDeadline(&context_);
    stream_ = stub_->Attach(&context_);
    worker::v1::AttachRequest message;
    auto& info = *message.mutable_register_();
    info.set_worker_id(id);
    info.set_incarnation(incarnation);
    info.set_min_protocol_version(protocol_version);
    info.set_max_protocol_version(protocol_version);
    stream_->Write(message);
  }
  // A stream that says nothing yet.
  explicit TestWorker(const std::string& address)
      : stub_(worker::v1::WorkerControlService::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {
    SetDeadline(&context_);
    stream_ = stub_->Attach(&context_);
  }
  ~TestWorker() { context_.TryCancel(); }

  // The next message, an empty one when the stream has ended.
  worker::v1::AttachResponse Read() {
    worker::v1::AttachResponse message;
    stream_->Read(&message);
    if (message.has_prepare()) prepare = message.prepare();
    return message;
  }
  bool Say(const worker::v1::AttachRequest& message) {
    return stream_->Write(message);
  }
  // Fills in whom the message is about and says it.
  template <typename Body>
  bool SayAbout(Body* body, const worker::v1::AttachRequest& message) {
    body->set_job_id(prepare.job_id());
    body->set_epoch(prepare.epoch());
    return Say(message);
  }

  // From the Prepare to the Start of a job.
  void GetReady() {
    Read();  // Prepare
    worker::v1::AttachRequest rendezvous;
    rendezvous.mutable_rendezvous()->set_rank(prepare.binding().rank());
    rendezvous.mutable_rendezvous()->add_addresses("here");
    SayAbout(rendezvous.mutable_rendezvous(), rendezvous);
  }
  void SayPrepared() {
    Read();  // RendezvousComplete
    worker::v1::AttachRequest prepared;
    prepared.mutable_prepared()->set_assignment_hash(prepare.units().hash());
    SayAbout(prepared.mutable_prepared(), prepared);
  }
  void SayStep(int64_t step, double loss) {
    worker::v1::AttachRequest message;
    auto* report = message.mutable_step_report();
    report->mutable_metrics()->set_step(step);
    report->mutable_metrics()->set_loss(loss);
    report->mutable_metrics()->set_tokens(64);
    SayAbout(report, message);
  }
  void SayFinished(int code, int64_t step) {
    worker::v1::AttachRequest message;
    message.mutable_finished()->set_code(code);
    message.mutable_finished()->set_step(step);
    SayAbout(message.mutable_finished(), message);
  }

  void Kill() { context_.TryCancel(); }
  // As a worker does that is stopped.
  void Leave() { stream_->WritesDone(); }
  // Waits for the end of the stream.
  grpc::Status Finish() {
    worker::v1::AttachResponse message;
    while (stream_->Read(&message)) {
    }
    return stream_->Finish();
  }

  worker::v1::Prepare prepare;

 private:
  const std::unique_ptr<worker::v1::WorkerControlService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<worker::v1::AttachRequest,
                                           worker::v1::AttachResponse>>
      stream_;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_SERVICE_TEST_CLIENT_H_
