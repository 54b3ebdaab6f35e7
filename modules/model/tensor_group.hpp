// The ranks that share each layer (tensor parallelism; Shoeybi et al. 2019, arXiv:1909.08053): each has some of the
// heads, MLP columns and vocabulary rows. Each computes partial sums of the residual stream's rows, which are reduced
// before they are added to it.
//
// Between layers, the stream's rows and their norms are replicated, or divided too (sequence parallelism; Korthikanti
// et al. 2022, arXiv:2205.05198): then sums are reduce-scattered, and rows all-gathered before a layer.
#pragma once

#include <cstdint>
#include <vector>

#include "cluster/communicator.hpp"
#include "kernels/backend.hpp"
#include "model/parameter_description.hpp"
#include "trace/tracer.hpp"

namespace lockstep::model {

using kernels::Backend;

class TensorGroup {
  public:
    TensorGroup() = default;  // a single rank
    // For planning: no communication.
    TensorGroup(const Part& part, bool divides_rows) : part_(part), divides_rows_(divides_rows && part.size > 1) {}
    // Waiting time is recorded as `region` of `tracer` (may be null).
    TensorGroup(cluster::Communicator& communicator, bool divides_rows, trace::Tracer* tracer, trace::RegionId region);

    const Part& part() const { return part_; }
    bool alone() const { return part_.size == 1; }
    bool first() const { return part_.rank == 0; }  // adds what must be added only once
    bool divides_rows() const { return divides_rows_; }
    std::int64_t stream_rows(std::int64_t rows) const { return divides_rows_ ? part_.count(rows) : rows; }
    void set_timed(bool timed) { timed_ = timed; }

    void sum(Tensor values) const;
    void sum(const std::vector<Tensor>& list) const;  // of each, at one time
    void maximum(Tensor values) const;
    // all [R, …]: every rank has filled its part.
    void gather(Tensor all) const;

    // All rows [rows, d] of the stream, of which this rank has `mine`: `mine` itself, or a tensor of `workspace`.
    Tensor gathered(Arena& workspace, Backend& backend, Tensor mine, std::int64_t rows) const;
    // Where a layer writes its partial sums [rows, d] for `mine`: `mine` itself, or a tensor of `workspace`; and the
    // reduction of these into `mine`.
    Tensor partial_for(Arena& workspace, Tensor mine, std::int64_t rows) const;
    void add_up(Backend& backend, Tensor mine, Tensor partial) const;
    // The same in two parts: what is computed between them may overlap the reduction.
    void begin_add_up(Tensor partial) const;
    void finish_add_up(Backend& backend, Tensor mine, Tensor partial) const;

  private:
    std::vector<std::int64_t> row_cuts(std::int64_t rows, std::int64_t width) const;
    Part part_;
    bool divides_rows_ = false, timed_ = true;
    cluster::Communicator* communicator_ = nullptr;
    trace::Tracer* tracer_ = nullptr;
    trace::RegionId region_ = -1;
};

// The gradient of a layer's input. The layer writes this rank's part of it and may say when that is done: the sum over
// the ranks then runs beside what the layer computes afterwards.
class InputGradient {
  public:
    InputGradient() = default;                                            // not needed
    explicit InputGradient(Tensor whole) : mine_(whole), part_(whole) {}  // a single rank
    // The sum is for `mine`; the part may lie in `workspace`.
    InputGradient(const TensorGroup& group, Arena& workspace, Tensor mine, std::int64_t rows)
        : group_(&group), mine_(mine), part_(group.partial_for(workspace, mine, rows)) {}
    Tensor part() const { return part_; }  // [rows, d], to be overwritten; empty: not needed
    void complete();                       // the part is written
    void finish(Backend& backend);         // the sum is in its place

  private:
    const TensorGroup* group_ = nullptr;
    Tensor mine_, part_;
    bool begun_ = false;
};

}  // namespace lockstep::model
