#include "cluster/gpu_communicator.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cluster/cuda/nccl_communicator.hpp"
#include "cluster/cuda/staged_communicator.hpp"
#include "cluster/mpi_host_group.hpp"

namespace lockstep::cluster {
namespace {

bool any_shared(HostGroup& world, const std::string& gpu) {
    constexpr std::size_t width = 512;
    std::vector<char> own(width);
    std::memcpy(own.data(), gpu.data(), std::min(gpu.size(), width - 1));
    const std::vector<char> all = world.gather(own.data(), width, 0);
    std::vector<std::string> names;
    for (std::size_t at = 0; at < all.size(); at += width) names.emplace_back(all.data() + at);
    std::sort(names.begin(), names.end());
    const bool shared = std::adjacent_find(names.begin(), names.end()) != names.end();
    return world.all_maximum(world.rank() == 0 && shared ? 1 : 0) != 0;
}

#if defined(LOCKSTEP_NCCL)
// "" if NCCL is unusable. NVLS, reduction in the NVLink switches, changes its order of summation from call to call, and
// runs must be reproducible; an NCCL_ALGO set by the user takes precedence.
std::string nccl_version_text() {
    setenv("NCCL_ALGO", "^NVLS,NVLSTree", 0);
    int version = 0;
    if (ncclGetVersion(&version) != ncclSuccess) return "";
    return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}
#endif

class NoSource final : public CommunicatorSource {
  public:
    std::unique_ptr<Communicator> make(const std::vector<int>& ranks, Use, const std::string&) override {
        LOCKSTEP_ASSERT(ranks == std::vector<int>{0});
        return make_solo_communicator();
    }
    const std::string& carrier() const override { return carrier_; }

  private:
    std::string carrier_ = "none";
};

class StagedSource final : public CommunicatorSource {
  public:
    StagedSource(std::shared_ptr<CudaContext> context, std::string carrier)
        : context_(std::move(context)), carrier_(std::move(carrier)) {}
    std::unique_ptr<Communicator> make(const std::vector<int>& ranks, Use use, const std::string& name) override {
        if (ranks.size() == 1) return make_solo_communicator();
        return std::make_unique<StagedCommunicator>(std::make_shared<MpiGroup>(ranks, name), use, context_);
    }
    const std::string& carrier() const override { return carrier_; }

  private:
    std::shared_ptr<CudaContext> context_;
    std::string carrier_;
};

#if defined(LOCKSTEP_NCCL)
class NcclSource final : public CommunicatorSource {
  public:
    NcclSource(std::shared_ptr<CudaContext> context, std::string carrier)
        : context_(std::move(context)), carrier_(std::move(carrier)) {
        while_waiting_for_gpu([process = process_] { process->check_others(); });
    }
    std::unique_ptr<Communicator> make(const std::vector<int>& ranks, Use use, const std::string& name) override {
        if (ranks.size() == 1) return make_solo_communicator();
        return std::make_unique<NcclCommunicator>(std::make_shared<MpiGroup>(ranks, name), use, context_, process_);
    }
    const std::string& carrier() const override { return carrier_; }

  private:
    std::shared_ptr<CudaContext> context_;
    std::shared_ptr<NcclProcess> process_ = std::make_shared<NcclProcess>();
    std::string carrier_;
};
#endif

}  // namespace

std::unique_ptr<CommunicatorSource> make_gpu_communicator_source(std::shared_ptr<CudaContext> context,
                                                                 const std::string& gpu) {
    const std::vector<int> all = all_ranks();
    if (all.size() == 1) return std::make_unique<NoSource>();
    MpiHostGroup world(all, "GPUs");
    std::string why_staged;
    if (any_shared(world, gpu)) why_staged = "; ranks share a GPU";
#if defined(LOCKSTEP_NCCL)
    const std::string nccl = nccl_version_text();
    if (why_staged.empty() && world.all_maximum(nccl.empty() ? 1 : 0) != 0)
        why_staged = "; NCCL is not available on every rank";
    if (why_staged.empty()) return std::make_unique<NcclSource>(std::move(context), nccl);
#else
    if (why_staged.empty()) why_staged = "; built without NCCL";
#endif
    return std::make_unique<StagedSource>(std::move(context), "MPI through pinned memory" + why_staged);
}

}  // namespace lockstep::cluster
