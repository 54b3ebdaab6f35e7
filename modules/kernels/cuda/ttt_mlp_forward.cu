// TTT-MLP forward.
#include <algorithm>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ttt_mlp.hpp"

namespace lockstep::kernels::cuda {

std::int64_t ttt_mlp_saved_count(const TttShape& shape) {
    const TttMlpSizes sizes = ttt_mlp_sizes(shape);
    return std::max<std::int64_t>(sizes.pairs() * sizes.kept_states() * sizes.state_count(), 1);
}

void ttt_mlp_forward(const TttArguments& arguments, Type type) {
    ttt_mlp_forward_general(arguments, type);
}

}  // namespace lockstep::kernels::cuda
