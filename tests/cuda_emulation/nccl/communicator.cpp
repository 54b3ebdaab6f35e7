#include "cuda_emulation/nccl/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

std::string ncclComm::error_text() const {
    const std::lock_guard lock(mutex_);
    return error_text_;
}

void ncclComm::set_error(ncclResult_t result, const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    if (error != ncclSuccess) return;
    error_text_ = sentence;
    error = result;
}

namespace lockstep::emulation::nccl {
namespace {

std::vector<std::unique_ptr<ncclComm>>& registry() {
    static auto* all = new std::vector<std::unique_ptr<ncclComm>>;  // streams may hold its work until the very end
    return *all;
}

std::mutex& registry_mutex() {
    static std::mutex mutex;
    return mutex;
}

}  // namespace

ncclComm* make_communicator(const ncclConfig_t* config) {
    auto comm = std::make_unique<ncclComm>();
    if (config && config->blocking == 0) comm->blocking = false;
    if (config && config->commName) comm->name = config->commName;
    const std::lock_guard lock(registry_mutex());
    registry().push_back(std::move(comm));
    return registry().back().get();
}

const std::vector<std::unique_ptr<ncclComm>>& communicators() {
    return registry();
}

bool is_handle(const ncclComm* comm) {
    const std::lock_guard lock(registry_mutex());
    return std::any_of(registry().begin(), registry().end(),
                       [comm](const auto& each) { return each.get() == comm && !each->closed; });
}

void complete(ncclComm& comm, const std::vector<Member>& members, std::uint64_t id, const std::string& name) {
    comm.id = id;
    if (comm.name.empty()) comm.name = name;
    const auto size = members.size();
    comm.size = static_cast<int>(size);
    for (const Member& member : members) comm.members.push_back(member.world);
    comm.departures.assign(size, Departure::none);
    comm.sends.assign(size, 0);
    comm.receives.assign(size, 0);
    for (std::size_t one = 0; one < size; ++one)
        for (std::size_t other = one + 1; other < size; ++other)
            if (members[one].host == members[other].host && members[one].device == members[other].device)
                throw usage_error(
                    "ranks {} and {} of the NCCL communicator {} are both on GPU {} of {}; NCCL takes one rank on a "
                    "GPU",
                    one, other, comm.name, members[one].device, members[one].host.data());
    comm.ready = true;
}

}  // namespace lockstep::emulation::nccl
