#include <cstring>

#include "cluster/communicator.hpp"
#include "cluster/parts.hpp"

namespace lockstep::cluster {
namespace {

class SoloCommunicator final : public Communicator {
  public:
    int rank() const override { return 0; }
    int size() const override { return 1; }
    void all_reduce(Tensor, Reduce) override {}
    void begin_all_reduce(Tensor, Reduce) override {}
    void begin_reduce_scatter(Tensor values, const std::vector<std::int64_t>& cuts) override {
        parts_of(values, cuts, 1);
    }
    void begin_all_gather(Tensor values, const std::vector<std::int64_t>& cuts) override { parts_of(values, cuts, 1); }
    void finish_collectives() override {}
    std::unique_ptr<Transfer> begin_send(Tensor, int, int) override { throw nobody(); }
    std::unique_ptr<Transfer> begin_receive(Tensor, int, int) override { throw nobody(); }

  private:
    static Error nobody() { return fault_error("a single rank has no peer to send to or receive from"); }
};

class SoloGroup final : public HostGroup {
  public:
    int rank() const override { return 0; }
    int size() const override { return 1; }
    void all_reduce(std::vector<double>&, Reduce) override {}
    void all_reduce(std::vector<std::int64_t>&, Reduce) override {}
    void broadcast(void*, std::size_t, int) override {}
    std::vector<char> gather(const void* data, std::size_t bytes, int) override {
        const char* first = static_cast<const char*>(data);
        return {first, first + bytes};
    }
    std::vector<char> all_gather_bytes(const void* data, std::size_t bytes) override { return gather(data, bytes, 0); }
    void exchange(const std::vector<HostMessage>& receives, const std::vector<HostMessage>& sends) override {
        auto send = sends.begin();
        for (const HostMessage& receive : receives) {
            if (receive.bytes == 0) continue;
            while (send != sends.end() && send->bytes == 0) ++send;
            LOCKSTEP_ASSERT(receive.rank == 0 && send != sends.end() && send->rank == 0);
            LOCKSTEP_ASSERT(send->bytes == receive.bytes);
            std::memmove(receive.data, send->data, receive.bytes);
            ++send;
        }
        while (send != sends.end() && send->bytes == 0) ++send;
        LOCKSTEP_ASSERT(send == sends.end());
    }
    void barrier() override {}
};

}  // namespace

std::unique_ptr<HostGroup> make_solo_group() {
    return std::make_unique<SoloGroup>();
}

std::unique_ptr<Communicator> make_solo_communicator() {
    return std::make_unique<SoloCommunicator>();
}

}  // namespace lockstep::cluster
