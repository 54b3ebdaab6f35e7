#include "cluster/communicator.hpp"

#include <utility>

namespace lockstep::cluster {
namespace {

class Transfers final : public Transfer {
  public:
    explicit Transfers(std::vector<std::unique_ptr<Transfer>> parts) : parts_(std::move(parts)) {}
    void wait() override {
        for (const auto& part : parts_) part->wait();
    }

  private:
    std::vector<std::unique_ptr<Transfer>> parts_;
};

}  // namespace

// Over MPI, messages wait for none of each other.
std::unique_ptr<Transfer> Communicator::begin_exchange(const std::vector<Message>& messages, int tag) {
    std::vector<std::unique_ptr<Transfer>> parts;
    for (const bool sent : {false, true})
        for (const Message& message : messages)
            if (message.sent == sent)
                parts.push_back(sent ? begin_send(message.values, message.rank, tag)
                                     : begin_receive(message.values, message.rank, tag));
    return std::make_unique<Transfers>(std::move(parts));
}

}  // namespace lockstep::cluster
