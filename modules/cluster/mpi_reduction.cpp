#include "cluster/mpi_reduction.hpp"

#include <cstdlib>

#include "base/float16.hpp"
#include "cluster/mpi_check.hpp"
#include "cluster/mpi_segments.hpp"
#include "cluster/mpi_wait.hpp"

namespace lockstep::cluster {
namespace {

MPI_Op mpi_operation(Reduce operation) {
    switch (operation) {
        case Reduce::sum:
            return MPI_SUM;
        case Reduce::maximum:
            return MPI_MAX;
        case Reduce::minimum:
            return MPI_MIN;
    }
    throw fault_error("unsupported reduction");
}

template <Type type, Reduce operation>
void combine(void* incoming, void* result, int* count, MPI_Datatype*) {
    constexpr auto value = type == Type::bf16 ? bf16_value : fp16_value;
    constexpr auto bits = type == Type::bf16 ? bf16_bits : fp16_bits;
    const auto* in = static_cast<const std::uint16_t*>(incoming);
    auto* out = static_cast<std::uint16_t*>(result);
    for (int i = 0; i < *count; ++i) {
        const float a = value(in[i]), b = value(out[i]);
        if constexpr (operation == Reduce::sum)
            out[i] = bits(a + b);
        else if (operation == Reduce::maximum ? a > b : a < b)
            out[i] = in[i];
    }
}

// Created on first use, never freed.
template <Type type, Reduce operation>
MPI_Op operation_of() {
    static const MPI_Op made = [] {
        MPI_Op op = MPI_OP_NULL;
        LOCKSTEP_MPI(MPI_Op_create, combine<type, operation>, 1, &op);
        return op;
    }();
    return made;
}

template <Type type>
MPI_Op operation_of(Reduce operation) {
    switch (operation) {
        case Reduce::sum:
            return operation_of<type, Reduce::sum>();
        case Reduce::maximum:
            return operation_of<type, Reduce::maximum>();
        case Reduce::minimum:
            return operation_of<type, Reduce::minimum>();
    }
    throw fault_error("unsupported reduction");
}

}  // namespace

MpiReduction mpi_reduction(Type type, Reduce operation) {
    switch (type) {
        case Type::fp32:
            return {MPI_FLOAT, mpi_operation(operation)};
        case Type::fp64:
            return {MPI_DOUBLE, mpi_operation(operation)};
        case Type::int32:
            return {MPI_INT32_T, mpi_operation(operation)};
        case Type::bf16:
            return {MPI_UINT16_T, operation_of<Type::bf16>(operation)};
        case Type::fp16:
            return {MPI_UINT16_T, operation_of<Type::fp16>(operation)};
    }
    throw fault_error("unsupported data type of a reduction");
}

std::size_t largest_segment() {
    static const std::size_t bytes = [] {
        const char* text = std::getenv("LOCKSTEP_MPI_PIECE_BYTES");
        const std::size_t given = text ? std::strtoull(text, nullptr, 10) : 0;
        return given >= sizeof(double) ? given / sizeof(double) * sizeof(double) : std::size_t{1} << 28;
    }();
    return bytes;
}

void all_reduce_segmented(void* data, std::size_t count, Type type, Reduce operation, MPI_Comm comm) {
    const MpiReduction reduction = mpi_reduction(type, operation);
    const auto reduce = [&](char* segment, int elements) {
        wait_for([&](MPI_Request* request) {
            LOCKSTEP_MPI(MPI_Iallreduce, MPI_IN_PLACE, segment, elements, reduction.type, reduction.operation, comm,
                         request);
        });
    };
    for_each_segment(data, count, type_bytes(type), reduce, largest_reduced_segment());
}

}  // namespace lockstep::cluster
