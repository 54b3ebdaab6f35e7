#include "cluster/distinct_texts.hpp"

#include <cstring>
#include <string_view>
#include <unordered_map>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace lockstep::cluster {
namespace {

template <class Value>
void put(std::string& bytes, const Value& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class Value>
Value take(std::string_view& bytes) {
    Value value;
    LOCKSTEP_ASSERT(bytes.size() >= sizeof value);
    std::memcpy(&value, bytes.data(), sizeof value);
    bytes.remove_prefix(sizeof value);
    return value;
}

struct Lowest64Bits {
    std::size_t operator()(const Hash128& hash) const { return hash.low; }
};

}  // namespace

std::string hashes_of(const std::vector<std::string>& texts) {
    std::string message;
    put(message, static_cast<std::uint64_t>(texts.size()));
    for (const std::string& text : texts) put(message, hash128(text.data(), text.size()));
    return message;
}

void add_text(std::string& message, const std::string& text) {
    put(message, static_cast<std::uint64_t>(text.size()));
    message += text;
}

DistinctTexts gather_distinct_texts(const std::vector<std::string>& own, HostGroup& group) {
    const std::string bytes = hashes_of(own);
    const std::vector<char> hashes = group.all_gather_bytes(bytes.data(), bytes.size());

    DistinctTexts distinct;
    distinct.of_rank.resize(static_cast<std::size_t>(group.size()));
    std::unordered_map<Hash128, std::uint32_t, Lowest64Bits> known;
    std::string firsts;  // of the texts that no lower rank has
    std::string_view left(hashes.data(), hashes.size());
    for (int rank = 0; rank < group.size(); ++rank) {
        auto& of_rank = distinct.of_rank[static_cast<std::size_t>(rank)];
        of_rank.resize(take<std::uint64_t>(left));
        for (std::size_t i = 0; i < of_rank.size(); ++i) {
            const auto [found, is_new] =
                known.try_emplace(take<Hash128>(left), static_cast<std::uint32_t>(known.size()));
            of_rank[i] = found->second;
            if (is_new && rank == group.rank()) add_text(firsts, own[i]);
        }
    }
    const std::vector<char> all = group.all_gather_bytes(firsts.data(), firsts.size());
    distinct.texts.reserve(known.size());
    for (left = {all.data(), all.size()}; !left.empty();) {
        const auto size = take<std::uint64_t>(left);
        LOCKSTEP_ASSERT(size <= left.size());
        distinct.texts.emplace_back(left.substr(0, size));
        left.remove_prefix(size);
    }
    LOCKSTEP_ASSERT(distinct.texts.size() == known.size());
    return distinct;
}

}  // namespace lockstep::cluster
