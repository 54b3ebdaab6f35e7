#include "cuda_emulation/nccl/ledger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "cuda_emulation/nccl/wire.hpp"

namespace lockstep::emulation::nccl::ledger {
namespace {

enum class Word : std::uint8_t { called, here, left };

struct Announcement {
    Word word = Word::called;
    Departure departure = Departure::none;
    Request request;
    std::int32_t rank = 0;  // the sender's, in the communicator
    std::int32_t tag = 0;
    std::uint64_t communicator = 0;
    std::uint64_t call = 0, index = 0;
    std::uint64_t collectives_before = 0, collectives_after = 0;  // of this communicator, around the call's group
    char name[48] = {};                                           // the communicator's
};

struct Peer {
    std::deque<std::shared_ptr<Operation>> own;  // collective calls of this process that the peer has not matched
    std::deque<Announcement> theirs;             // and its calls that this process has not matched
    std::string last_call;
};

// A call of another rank: communicator, its world rank, kind (collectives are one), index.
using CallKey = std::tuple<std::uint64_t, int, Kind, std::uint64_t>;

struct State {
    std::uint64_t calls = 0;
    std::map<int, Peer> peers;                           // by world rank
    std::map<CallKey, Announcement> sends_and_receives;  // announced to this rank
    std::map<CallKey, int> here;                         // the tags
    std::set<std::uint64_t> left;                        // communicators this process is not in any more
};

State& state() {
    static auto* all = new State;
    return *all;
}

Kind key_kind(Kind kind) {
    return is_collective(kind) ? Kind::all_reduce : kind;
}

Kind opposite(Kind kind) {
    if (kind == Kind::send) return Kind::receive;
    return kind == Kind::receive ? Kind::send : Kind::all_reduce;
}

Announcement announcement_of(const ncclComm& comm, Word word) {
    Announcement said;
    said.word = word;
    said.rank = comm.rank;
    said.communicator = comm.id;
    std::strncpy(said.name, comm.name.c_str(), sizeof said.name - 1);
    return said;
}

Announcement announcement_of(const Operation& operation, Word word) {
    Announcement said = announcement_of(*operation.comm, word);
    said.request = operation.request;
    said.call = operation.call;
    said.index = operation.index;
    said.collectives_before = operation.collectives_before;
    said.collectives_after = operation.collectives_after;
    return said;
}

void say(const ncclComm& comm, int rank, const Announcement& said) {
    wire::post(comm.members[static_cast<std::size_t>(rank)], wire::announcement_tag, &said, sizeof said);
}

std::string text_of(const Announcement& said) {
    return fmt::format("{} on communicator {} (rank {} of it, its NCCL call {})", describe(said.request), said.name,
                       said.rank, said.call);
}

std::string text_of(const Operation& operation) {
    return text_of(announcement_of(operation, Word::called));
}

ncclComm* find(std::uint64_t id) {
    for (const auto& comm : communicators())
        if (comm->id == id && comm->ready && !comm->departed) return comm.get();
    return nullptr;
}

// Takes what fits from the fronts of both lists; at the first calls that do not fit, both communicators have an error.
void match_collectives(int world) {
    Peer& peer = state().peers[world];
    while (!peer.own.empty() && !peer.theirs.empty()) {
        Operation& own = *peer.own.front();
        const Announcement& theirs = peer.theirs.front();
        if (own.comm->id != theirs.communicator || !same(own.request, theirs.request)) {
            const std::string sentence = fmt::format(
                "NCCL calls do not fit: {} meets {}; ranks must make the same calls in the same order over all the "
                "communicators they share",
                text_of(own), text_of(theirs));
            own.comm->set_error(ncclInvalidUsage, sentence);
            if (ncclComm* other = find(theirs.communicator)) other->set_error(ncclInvalidUsage, sentence);
            return;
        }
        for (Partner& partner : own.partners)
            if (partner.rank == theirs.rank) partner.called = true;
        peer.own.pop_front();
        peer.theirs.pop_front();
    }
}

void take(int world, const Announcement& said) {
    if (said.word == Word::left) {
        for (const auto& comm : communicators())
            if (comm->id == said.communicator && comm->ready)
                comm->departures[static_cast<std::size_t>(said.rank)] = said.departure;
        return;
    }
    if (state().left.count(said.communicator)) return;
    const CallKey key{said.communicator, world, key_kind(said.request.kind), said.index};
    if (said.word == Word::here) {
        state().here[key] = said.tag;
        return;
    }
    Peer& peer = state().peers[world];
    peer.last_call = text_of(said);
    if (!is_collective(said.request.kind)) {
        state().sends_and_receives[key] = said;
        return;
    }
    peer.theirs.push_back(said);
    match_collectives(world);
}

// Only its partner's announcement decides whether a send or receive fits.
void match_with_peer(Operation& operation, const CallKey& key) {
    const auto found = state().sends_and_receives.find(key);
    if (found == state().sends_and_receives.end()) return;
    const Announcement& theirs = found->second;
    if (theirs.request.count != operation.request.count || theirs.request.type != operation.request.type) {
        operation.comm->set_error(ncclInvalidUsage,
                                  fmt::format("NCCL calls do not fit: {} meets {}; both must have the "
                                              "same count and type",
                                              text_of(operation), text_of(theirs)));
        return;
    }
    if (theirs.collectives_after < operation.collectives_before ||
        operation.collectives_after < theirs.collectives_before) {
        operation.comm->set_error(
            ncclInvalidUsage,
            fmt::format("NCCL calls do not fit: {} comes after {} collective calls of its communicator, {} after {}; "
                        "sends and receives must keep their place among them",
                        text_of(operation), operation.collectives_before, text_of(theirs), theirs.collectives_before));
        return;
    }
    operation.partners.front().called = true;
    state().sends_and_receives.erase(found);
}

}  // namespace

void announce(const std::vector<std::shared_ptr<Operation>>& group) {
    ncclComm& comm = *group.front()->comm;
    const std::uint64_t before = comm.collectives;
    for (const auto& operation : group)
        if (is_collective(operation->request.kind)) operation->index = comm.collectives++;
    for (const auto& operation : group) {
        const Request& request = operation->request;
        operation->call = ++state().calls;
        const bool collective = is_collective(request.kind);
        if (!collective) {
            auto& counters = request.kind == Kind::send ? comm.sends : comm.receives;
            operation->index = counters[static_cast<std::size_t>(request.root)]++;
            operation->partners.push_back({request.root});
        } else {
            for (int rank = 0; rank < comm.size; ++rank)
                if (rank != comm.rank) operation->partners.push_back({rank});
        }
        operation->collectives_before = before;
        operation->collectives_after = comm.collectives;
        const Announcement said = announcement_of(*operation, Word::called);
        for (const Partner& partner : operation->partners) {
            say(comm, partner.rank, said);
            if (!collective) continue;
            const int world = comm.members[static_cast<std::size_t>(partner.rank)];
            state().peers[world].own.push_back(operation);
            match_collectives(world);
        }
    }
}

void announce_presence(const Operation& operation, int tag) {
    Announcement said = announcement_of(operation, Word::here);
    said.tag = tag;
    for (const Partner& partner : operation.partners) say(*operation.comm, partner.rank, said);
}

void take_announcements() {
    if (!wire::usable()) return;  // one rank alone
    for (const auto& comm : communicators())
        if (comm->aborted && comm->ready && !comm->departed) leave(*comm, Departure::aborted);
    while (const auto message = wire::take(wire::announcement_tag)) {
        Announcement said;
        LOCKSTEP_ASSERT(message->bytes.size() == sizeof said);
        std::memcpy(static_cast<void*>(&said), message->bytes.data(), sizeof said);
        take(message->from, said);
    }
}

void update(Operation& operation) {
    const ncclComm& comm = *operation.comm;
    for (Partner& partner : operation.partners) {
        const int world = comm.members[static_cast<std::size_t>(partner.rank)];
        const CallKey key{comm.id, world, opposite(operation.request.kind), operation.index};
        if (!partner.called && !is_collective(operation.request.kind)) match_with_peer(operation, key);
        if (!partner.called || partner.here) continue;
        const auto here = state().here.find(key);
        if (here == state().here.end()) continue;
        partner.here = true;
        partner.tag = here->second;
        state().here.erase(here);
    }
}

void leave(ncclComm& comm, Departure how) {
    if (comm.departed.exchange(true)) return;
    Announcement said = announcement_of(comm, Word::left);
    said.departure = how;
    for (int rank = 0; rank < comm.size; ++rank)
        if (rank != comm.rank) say(comm, rank, said);

    State& all = state();
    all.left.insert(comm.id);
    const auto of_comm = [&comm](const auto& entry) { return std::get<0>(entry) == comm.id; };
    for (auto& [world, peer] : all.peers) {
        std::erase_if(peer.own, [&comm](const auto& operation) { return operation->comm == &comm; });
        std::erase_if(peer.theirs, [&comm](const auto& said_before) { return said_before.communicator == comm.id; });
    }
    std::erase_if(all.sends_and_receives, [&](const auto& entry) { return of_comm(entry.first); });
    std::erase_if(all.here, [&](const auto& entry) { return of_comm(entry.first); });
    for (auto& [world, peer] : all.peers) match_collectives(world);
}

std::string last_call_of(const ncclComm& comm, int rank) {
    return state().peers[comm.members[static_cast<std::size_t>(rank)]].last_call;
}

}  // namespace lockstep::emulation::nccl::ledger
