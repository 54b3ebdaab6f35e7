#include "planner/gradient_plan.hpp"

#include <algorithm>

namespace lockstep::planner {
namespace {

class Planner {
  public:
    Planner(const model::ParameterLayout& layout, const GradientPlanOptions& options)
        : layout_(layout), options_(options) {}

    std::size_t add_bucket(std::int64_t begin, std::int64_t end) {
        Bucket bucket;
        bucket.range = {begin, end - begin};
        // Cuts at multiples of the alignment, so that every part can be updated by itself.
        const std::int64_t units = (end - begin) / model::ParameterLayout::alignment;
        for (std::int64_t replica = 0; replica <= options_.replicas; ++replica)
            bucket.cuts.push_back(units * replica / options_.replicas * model::ParameterLayout::alignment);
        if (options_.shared_layers)
            for (std::size_t i = 0; i < layout_.size(); ++i) {
                const auto part = layout_.descriptions()[i].gradient_part;
                const bool partial = part == model::GradientPart::of_heads ||
                                     (part == model::GradientPart::of_the_rows && options_.divided_rows);
                if (partial && layout_.offset(i) >= begin && layout_.offset(i) < end) bucket.partial.push_back(i);
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
            Segment segment;
            segment.first_block = block;
            segment.last_block = last_block;
            segment.first = segments.empty();
            segment.last = all;
            segment.bucket = add_bucket(from, end);
            segments.push_back(segment);
            last_block = block;
            end = from;
        }
        plan.chunks.push_back(std::move(segments));
    }

    GradientPlan plan;

  private:
    const model::ParameterLayout& layout_;
    const GradientPlanOptions& options_;
};

}  // namespace

std::vector<model::Piece> GradientPlan::owned(std::int64_t replica) const {
    std::vector<model::Piece> pieces;
    for (const Bucket& bucket : buckets) {
        const auto at = static_cast<std::size_t>(replica);
        pieces.push_back({bucket.range.first + bucket.cuts[at], bucket.cuts[at + 1] - bucket.cuts[at]});
    }
    std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return pieces;
}

// In the flat tensors lie the embedding, the blocks of all chunks, and the head.
GradientPlan plan_gradients(const model::ParameterLayout& layout, const std::vector<model::StageRange>& chunks,
                            const GradientPlanOptions& options) {
    std::vector<std::vector<std::int64_t>> offsets(chunks.size());
    std::int64_t behind_table = 0;
    for (std::size_t i = 0; i < layout.size(); ++i) {
        const std::string& name = layout.descriptions()[i].name;
        if (name == "embedding/weight") behind_table = i + 1 < layout.size() ? layout.offset(i + 1) : layout.total();
        if (!name.starts_with("blocks/")) continue;
        const std::int64_t number = std::stoll(name.substr(7));
        for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
            if (number < chunks[chunk].first_block || number >= chunks[chunk].last_block) continue;
            if (static_cast<std::int64_t>(offsets[chunk].size()) == number - chunks[chunk].first_block)
                offsets[chunk].push_back(layout.offset(i));
        }
    }
    Planner planner(layout, options);
    if (options.tied_ends && behind_table > 0) planner.plan.tied = planner.add_bucket(0, behind_table);
    for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
        std::int64_t begin = offsets[chunk].front();
        if (chunk == 0) begin = planner.plan.tied ? behind_table : 0;
        const std::int64_t end = chunk + 1 < chunks.size() ? offsets[chunk + 1].front() : layout.total();
        planner.add_chunk(begin, offsets[chunk], end);
    }
    return planner.plan;
}

}  // namespace lockstep::planner
