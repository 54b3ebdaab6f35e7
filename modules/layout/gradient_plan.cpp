#include "layout/gradient_plan.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep::layout {
namespace {

class Planner {
  public:
    Planner(const model::ParameterLayout& layout, const GradientPlanOptions& options)
        : layout_(layout), options_(options), whole_(static_cast<std::size_t>(options.replicas)) {}

    // Blocks use two buffers in turn. The embedding and the head share one: each is waited for before the other takes
    // its place. A tied table is in use all of a pass.
    static constexpr std::size_t buffers_of_blocks = 2, buffer_of_ends = 2, buffer_of_table = 3;

    std::size_t add_bucket(std::int64_t begin, std::int64_t end, std::size_t buffer) {
        Bucket bucket;
        bucket.buffer = buffer;
        bucket.range = {begin, end - begin};
        bucket.cuts = cuts(begin, end);
        if (options_.shared_layers)
            for (std::size_t i = 0; i < layout_.size() && layout_.offset(i) < end; ++i) {
                const auto part = layout_.descriptions()[i].gradient_part;
                const bool partial = part == model::GradientPart::of_heads ||
                                     (part == model::GradientPart::of_the_rows && options_.divided_rows);
                if (partial && layout_.offset(i) >= begin) bucket.partial.push_back(i);
            }
        plan.buckets.push_back(std::move(bucket));
        return plan.buckets.size() - 1;
    }

    // The blocks of a chunk begin at `offsets`; its gradients are [begin, end).
    void add_chunk(std::int64_t begin, const std::vector<std::int64_t>& offsets, std::int64_t end) {
        std::vector<Segment> segments;
        std::size_t last_block = offsets.size();
        for (std::size_t block = offsets.size(); block-- > 0;) {
            const bool all = block == 0;
            const std::int64_t from = all ? begin : offsets[block];
            const bool worth =
                options_.replicas > 1 && (end - from) * std::int64_t{sizeof(float)} >= options_.bucket_bytes;
            if (!all && !worth) continue;
            if (from == end && !segments.empty()) {  // nothing below is trained
                segments.back().first_block = block;
                segments.back().last = all;
                last_block = block;
                continue;
            }
            Segment segment;
            segment.first_block = block;
            segment.last_block = last_block;
            segment.first = segments.empty();
            segment.last = all;
            if (from < end) segment.bucket = add_bucket(from, end, 0);
            segments.push_back(segment);
            last_block = block;
            end = from;
        }
        plan.chunks.push_back(std::move(segments));
    }

    // A bucket for each block, for the head and for the embedding of a chunk. The blocks end at `behind`.
    void add_each_block(std::int64_t begin, const std::vector<std::int64_t>& offsets, std::int64_t behind,
                        std::int64_t end) {
        std::vector<Segment> segments;
        const auto add = [&](std::size_t first, std::size_t last, std::int64_t from, std::int64_t until,
                             std::size_t buffer) {
            Segment segment;
            segment.first_block = first;
            segment.last_block = last;
            if (from < until) segment.bucket = add_bucket(from, until, buffer);
            segments.push_back(segment);
        };
        if (behind < end) add(offsets.size(), offsets.size(), behind, end, buffer_of_ends);
        for (std::size_t block = offsets.size(); block-- > 0;) {
            add(block, block + 1, offsets[block], behind, (blocks_before_ + block) % buffers_of_blocks);
            behind = offsets[block];
        }
        if (begin < behind) add(0, 0, begin, behind, buffer_of_ends);
        segments.front().first = true;
        segments.back().last = true;
        blocks_before_ += offsets.size();
        plan.chunks.push_back(std::move(segments));
    }

    GradientPlan plan;

  private:
    // Elements of [0, count) that each replica should take, so that all have as many of the buckets that are cut
    // between matrices: the least loaded ones first.
    std::vector<std::int64_t> level(std::int64_t count) const {
        std::vector<std::int64_t> sorted = whole_;
        std::sort(sorted.begin(), sorted.end());
        std::int64_t sum = count, most = 0;  // of the replicas that take part; what they all come to
        for (std::size_t part = 0; part < sorted.size(); ++part) {
            if (part > 0 && sorted[part] >= most) break;
            sum += sorted[part];
            most = sum / static_cast<std::int64_t>(part + 1);
        }
        std::vector<std::int64_t> shares;
        for (const std::int64_t load : whole_) shares.push_back(std::max<std::int64_t>(0, most - load));
        return shares;
    }

    bool has_whole_matrices(std::int64_t begin, std::int64_t end) const {
        if (options_.optimizer == nullptr || begin == end) return false;
        for (std::size_t i = layout_.at(begin); i < layout_.size() && layout_.offset(i) < end; ++i)
            if (options_.optimizer->granularity(layout_.descriptions()[i]).unit == optim::Granularity::Unit::matrix)
                return true;
        return false;
    }

    // Cut between matrices, the parts are uneven, and often fewer than the replicas.
    std::vector<std::int64_t> cuts_between_matrices(std::int64_t begin, std::int64_t end) {
        std::vector<std::int64_t> list = {0};
        std::int64_t wanted = begin;
        for (const std::int64_t share : level(end - begin)) {
            wanted = std::min(end, wanted + share / alignment * alignment);
            list.push_back(wanted == end ? end - begin : nearest_cut(wanted, end) - begin);
        }
        list.back() = end - begin;
        for (std::size_t part = 0; part < whole_.size(); ++part) whole_[part] += list[part + 1] - list[part];
        return list;
    }

    // Of [begin, end), for the replicas: multiples of the alignment, so that every part can be updated by itself. Parts
    // of one size are scattered and gathered by one collective: so the last replica has what is left over, unless that
    // is a good deal more.
    std::vector<std::int64_t> cuts(std::int64_t begin, std::int64_t end) {
        if (options_.replicas > 1 && has_whole_matrices(begin, end)) return cuts_between_matrices(begin, end);
        const std::int64_t units = (end - begin) / alignment, each = units / options_.replicas;
        const bool even = (units - each * options_.replicas) * most_left_over <= each;
        std::vector<std::int64_t> list = {0};
        for (std::int64_t part = 1; part < options_.replicas; ++part) {
            const std::int64_t before = even ? each * part : units * part / options_.replicas;
            list.push_back(nearest_cut(begin + before * alignment, end) - begin);
        }
        list.push_back(end - begin);
        return list;
    }

    // The nearest to `position` that the optimizer allows.
    std::int64_t nearest_cut(std::int64_t position, std::int64_t end) const {
        using Unit = optim::Granularity::Unit;
        const std::size_t i = layout_.at(position);
        const std::int64_t first = layout_.offset(i);
        const std::int64_t last = i + 1 < layout_.size() ? std::min(end, layout_.offset(i + 1)) : end;
        optim::Granularity granularity;
        if (options_.optimizer != nullptr) granularity = options_.optimizer->granularity(layout_.descriptions()[i]);
        std::int64_t unit = std::max(alignment, options_.block);
        if (granularity.unit == Unit::matrix) unit = last - first;
        if (granularity.unit == Unit::block) unit = std::lcm(granularity.block, unit);
        const std::int64_t low = position - (position - first) % unit, high = std::min(low + unit, last);
        return high - position < position - low ? high : low;
    }

    static constexpr std::int64_t alignment = model::ParameterLayout::alignment;
    static constexpr std::int64_t most_left_over = 16;  // a sixteenth of a part
    const model::ParameterLayout& layout_;
    const GradientPlanOptions& options_;
    std::size_t blocks_before_ = 0;    // of chunks before
    std::vector<std::int64_t> whole_;  // by replica: elements so far of buckets that are cut between matrices
};

}  // namespace

model::Piece Bucket::owned(std::int64_t replica) const {
    const auto at = static_cast<std::size_t>(replica);
    return {range.first + cuts[at], cuts[at + 1] - cuts[at]};
}

std::vector<model::Piece> GradientPlan::owned(std::int64_t replica) const {
    std::vector<model::Piece> pieces;
    for (const Bucket& bucket : buckets) pieces.push_back(bucket.owned(replica));
    std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return pieces;
}

namespace {

// Nothing is updated here, so that cuts may lie anywhere; and nothing shares a buffer with what is trained, which is
// needed at the same time.
std::vector<Bucket> plan_frozen(const model::ParameterLayout& layout, GradientPlanOptions options) {
    options.optimizer = nullptr;
    options.shared_layers = false;
    Planner planner(layout, options);
    constexpr std::size_t buffers = Planner::buffer_of_table + 1;
    std::size_t blocks = 0, i = 0;
    while (i < layout.size() && layout.descriptions()[i].trained) ++i;
    while (i < layout.size()) {
        const std::string& name = layout.descriptions()[i].name;
        const bool table = options.tied_apart && name == "embedding/weight", block = name.starts_with("blocks/");
        const bool is_behind = name.starts_with("final_norm/") || name.starts_with("head/");
        const std::string part = block ? name.substr(0, name.find('/', 7) + 1) : "";
        std::size_t end = i + 1;
        const auto continues = [&](const std::string& other) {
            const bool behind = other.starts_with("final_norm/") || other.starts_with("head/");
            return block ? other.starts_with(part) : !table && !other.starts_with("blocks/") && behind == is_behind;
        };
        while (end < layout.size() && continues(layout.descriptions()[end].name)) ++end;
        const std::int64_t first = layout.offset(i), last = end < layout.size() ? layout.offset(end) : layout.total();
        const std::size_t buffer = block   ? blocks++ % Planner::buffers_of_blocks
                                   : table ? Planner::buffer_of_table
                                           : Planner::buffer_of_ends;
        planner.add_bucket(first, last, buffers + buffer);
        i = end;
    }
    return planner.plan.buckets;
}

}  // namespace

// In the flat tensors lie what is trained of the embedding, the blocks of all chunks, and the head.
GradientPlan plan_gradients(const model::ParameterLayout& layout, const std::vector<model::StageRange>& chunks,
                            const GradientPlanOptions& options) {
    constexpr std::int64_t nothing = -1;
    std::vector<std::vector<std::int64_t>> offsets;
    for (const model::StageRange& chunk : chunks)
        offsets.emplace_back(static_cast<std::size_t>(chunk.last_block - chunk.first_block), nothing);
    std::int64_t behind_table = 0, behind_blocks = nothing;
    for (std::size_t i = 0; i < layout.size() && layout.descriptions()[i].trained; ++i) {
        const std::string& name = layout.descriptions()[i].name;
        if (name == "embedding/weight") behind_table = i + 1 < layout.size() ? layout.offset(i + 1) : layout.total();
        if (behind_blocks == nothing && (name.starts_with("final_norm/") || name.starts_with("head/")))
            behind_blocks = layout.offset(i);
        if (!name.starts_with("blocks/")) continue;
        const std::int64_t number = std::stoll(name.substr(7));
        for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
            if (number < chunks[chunk].first_block || number >= chunks[chunk].last_block) continue;
            std::int64_t& offset = offsets[chunk][static_cast<std::size_t>(number - chunks[chunk].first_block)];
            if (offset == nothing) offset = layout.offset(i);
        }
    }
    // A block of which nothing is trained begins where the next one does.
    std::int64_t next = behind_blocks == nothing ? layout.trained_total() : behind_blocks;
    for (auto chunk = offsets.rbegin(); chunk != offsets.rend(); ++chunk)
        for (auto offset = chunk->rbegin(); offset != chunk->rend(); ++offset)
            next = *offset = *offset == nothing ? next : *offset;
    Planner planner(layout, options);
    if (options.tied_apart && behind_table > 0)
        planner.plan.tied = planner.add_bucket(0, behind_table, Planner::buffer_of_table);
    for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
        std::int64_t begin = offsets[chunk].front();
        if (chunk == 0) begin = planner.plan.tied ? behind_table : 0;
        const bool last = chunk + 1 == chunks.size();
        const std::int64_t end = last ? layout.trained_total() : offsets[chunk + 1].front();
        if (options.each_block)
            planner.add_each_block(begin, offsets[chunk], last && behind_blocks != nothing ? behind_blocks : end, end);
        else
            planner.add_chunk(begin, offsets[chunk], end);
    }
    if (options.each_block) planner.plan.frozen = plan_frozen(layout, options);
    return planner.plan;
}

}  // namespace lockstep::layout
