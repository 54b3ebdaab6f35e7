#include "cuda_emulation/nccl/exchange.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "cuda_emulation/nccl/wire.hpp"
#include "nccl.h"

namespace lockstep::emulation::nccl {
namespace {

struct Join {
    ExchangeKey key;
    Member member;
};

std::map<ExchangeKey, std::vector<Member>> joined;   // at the rank that collects
std::map<ExchangeKey, std::vector<Member>> replies;  // not yet looked at by their exchange

// Complete, or not to be completed: the sizes differ. Its members see which.
bool is_decided(const std::vector<Member>& members) {
    for (const Member& member : members)
        if (member.size != members.front().size) return true;
    return static_cast<int>(members.size()) == members.front().size;
}

void answer(const ExchangeKey& key, const std::vector<Member>& members) {
    std::vector<char> bytes(sizeof key + members.size() * sizeof(Member));
    std::memcpy(bytes.data(), &key, sizeof key);
    std::memcpy(bytes.data() + sizeof key, members.data(), members.size() * sizeof(Member));
    for (const Member& member : members) wire::post(member.world, wire::reply_tag, bytes.data(), bytes.size());
}

void take_what_came() {
    while (const auto message = wire::take(wire::join_tag)) {
        Join join;
        LOCKSTEP_ASSERT(message->bytes.size() == sizeof join);
        std::memcpy(static_cast<void*>(&join), message->bytes.data(), sizeof join);
        std::vector<Member>& members = joined[join.key];
        members.push_back(join.member);
        if (!is_decided(members)) continue;
        answer(join.key, members);
        joined.erase(join.key);
    }
    while (const auto message = wire::take(wire::reply_tag)) {
        ExchangeKey key;
        std::memcpy(static_cast<void*>(&key), message->bytes.data(), sizeof key);
        std::vector<Member> members((message->bytes.size() - sizeof key) / sizeof(Member));
        std::memcpy(static_cast<void*>(members.data()), message->bytes.data() + sizeof key,
                    members.size() * sizeof(Member));
        replies[key] = std::move(members);
    }
}

std::string ranks_of(const std::vector<Member>& members) {
    std::string text;
    for (const Member& member : members) text += (text.empty() ? "" : ", ") + std::to_string(member.rank);
    return text.empty() ? "none" : text;
}

}  // namespace

Member this_process() {
    Member member;
    member.world = wire::rank();
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess) throw fault_error("cudaGetDevice failed");
    member.device = device;
    if (gethostname(member.host.data(), member.host.size() - 1) != 0)
        throw fault_error("this host has no name: {}", system_error_text());
    return member;
}

Exchange::Exchange(ExchangeKey key, int root, const Member& own)
    : key_(key), root_(root), own_(own), start_(seconds_now()) {
    if (own.size == 1) {
        members_ = {own};
        return;
    }
    const Join join{key, own};
    wire::post(root, wire::join_tag, &join, sizeof join);
}

bool Exchange::progress() {
    if (!members_.empty()) return true;
    take_what_came();
    const auto reply = replies.find(key_);
    if (reply == replies.end()) {
        if (seconds_now() - start_ <= wire::limit_seconds()) return false;
        std::string came;
        if (own_.world == root_) {
            came = "came: " + ranks_of(joined[key_]);
            joined.erase(key_);
        } else {
            came = "world rank " + std::to_string(root_) + ", whose list it is, has not answered";
        }
        throw fault_error(
            "rank {} of a NCCL communicator waited {} s for all {} ranks ({}); every rank must make it, the one that "
            "made the unique id among them",
            own_.rank, wire::limit_seconds(), own_.size, came);
    }
    std::vector<Member> members = std::move(reply->second);
    replies.erase(reply);
    std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.rank < b.rank; });
    for (std::size_t index = 0; index < members.size(); ++index) {
        const Member& member = members[index];
        if (member.size != own_.size)
            throw usage_error("rank {} makes a NCCL communicator of {} ranks where rank {} makes one of {}",
                              member.rank, member.size, own_.rank, own_.size);
        if (index > 0 && member.rank == members[index - 1].rank)
            throw usage_error("two processes (world ranks {} and {}) are rank {} of one NCCL communicator",
                              members[index - 1].world, member.world, member.rank);
    }
    members_ = std::move(members);
    return true;
}

}  // namespace lockstep::emulation::nccl
