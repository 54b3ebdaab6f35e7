#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels::cpu {

void CpuBackend::rotate(Tensor x, Tensor cosine, Tensor sine, std::int64_t length, std::int64_t first_position,
                        RotaryPairs pairs, bool inverse) {
    const std::int64_t half = cosine.size(-1), period = cosine.rows(), width = x.size(-1);
    LOCKSTEP_ASSERT(sine.count() == cosine.count() && period > 0 && half > 0 && width % (2 * half) == 0);
    LOCKSTEP_ASSERT(length > 0 && first_position >= 0);
    const float *cosines = cosine.fp32(), *sines = sine.fp32();
    const float direction = inverse ? -1.0f : 1.0f;
    with_element(x, [&]<class T>(T) {
        T* rows = x.strided_as<T>();
        const Elementwise<T>& vector = *vector_.of<T>().elementwise;
        const auto turn = pairs == RotaryPairs::interleaved ? vector.rotate_interleaved : vector.rotate_halves;
        parallel_for(x.rows(), row_grain(width), [&](std::int64_t first, std::int64_t last, int) {
            for (std::int64_t r = first; r < last; ++r) {
                const std::int64_t place = (first_position + r % length) % period * half;
                for (std::int64_t column = 0; column < width; column += 2 * half)
                    turn(rows + r * x.stride() + column, cosines + place, sines + place, direction, half);
            }
        });
    });
}

}  // namespace lockstep::kernels::cpu
