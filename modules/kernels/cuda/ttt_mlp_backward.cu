// TTT-MLP backward: selects the kernels.
#include "kernels/cuda/ttt_mlp.hpp"

namespace lockstep::kernels::cuda {

void ttt_mlp_backward(const TttArguments& arguments, Type type) {
    const TttMlpSizes sizes = ttt_mlp_sizes(arguments.shape);
    const int tile_width = ttt_mlp_tile_width(arguments, type);
    const std::int64_t part_floats = (sizes.pairs() * sizes.part_count + 63) / 64 * 64;
    const std::int64_t block_floats = tile_width
                                          ? ttt_mlp_backward_tiles_work(sizes, tile_width)
                                          : ttt_mlp_general_work(sizes, true, !arguments.shape.documents.joined());
    auto* const parts = static_cast<float*>(arguments.scratch(
        static_cast<std::size_t>(part_floats + ttt_mlp_blocks(arguments) * block_floats) * sizeof(float)));
    float* const work = parts + part_floats;
    if (tile_width)
        ttt_mlp_backward_tiles(arguments, type, parts, work);
    else
        ttt_mlp_backward_general(arguments, type, parts, work);
    ttt_add_parts(arguments, parts);
}

}  // namespace lockstep::kernels::cuda
