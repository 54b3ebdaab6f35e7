#include "model/tensor_group.hpp"

namespace lockstep::model {
TensorGroup::TensorGroup(cluster::Communicator& communicator, bool divides_rows, trace::Tracer* tracer,
                         trace::RegionId region)
    : part_{communicator.rank(), communicator.size()},
      divides_rows_(divides_rows && communicator.size() > 1),
      communicator_(&communicator),
      tracer_(tracer),
      region_(region) {}

void TensorGroup::sum(Tensor values) const {
    if (alone()) return;
    const trace::OptionalScope timed(timed_ ? tracer_ : nullptr, region_);
    communicator_->all_reduce(values, cluster::Reduce::sum);
}

void TensorGroup::sum(const std::vector<Tensor>& list) const {
    if (alone() || list.empty()) return;
    const trace::OptionalScope timed(timed_ ? tracer_ : nullptr, region_);
    for (const Tensor& values : list) communicator_->begin_all_reduce(values, cluster::Reduce::sum);
    communicator_->finish_collectives();
}

void TensorGroup::maximum(Tensor values) const {
    if (alone()) return;
    const trace::OptionalScope timed(timed_ ? tracer_ : nullptr, region_);
    communicator_->all_reduce(values, cluster::Reduce::maximum);
}

void TensorGroup::gather(Tensor all) const {
    if (alone()) return;
    const trace::OptionalScope timed(timed_ ? tracer_ : nullptr, region_);
    const std::int64_t count = all.count() / part_.size;
    std::vector<std::int64_t> cuts;
    for (std::int64_t rank = 0; rank <= part_.size; ++rank) cuts.push_back(rank * count);
    communicator_->begin_all_gather(all.reshaped({all.count()}), cuts);
    communicator_->finish_collectives();
}

std::vector<std::int64_t> TensorGroup::row_cuts(std::int64_t rows, std::int64_t width) const {
    std::vector<std::int64_t> cuts;
    for (std::int64_t rank = 0; rank <= part_.size; ++rank) cuts.push_back(Part{rank, part_.size}.first(rows) * width);
    return cuts;
}

Tensor TensorGroup::gathered(Arena& workspace, Backend& backend, Tensor mine, std::int64_t rows) const {
    if (!divides_rows_) return mine;
    const std::int64_t width = mine.size(-1);
    const Tensor all = workspace.allocate(mine.type(), {rows, width});
    if (mine.count() > 0) backend.copy(all.slice(part_.first(rows), part_.count(rows)), mine);
    const trace::OptionalScope timed(timed_ ? tracer_ : nullptr, region_);
    communicator_->begin_all_gather(all.reshaped({all.count()}), row_cuts(rows, width));
    communicator_->finish_collectives();
    return all;
}

Tensor TensorGroup::partial_for(Arena& workspace, Tensor mine, std::int64_t rows) const {
    return divides_rows_ ? workspace.allocate(mine.type(), {rows, mine.size(-1)}) : mine;
}

void TensorGroup::add_up(Backend& backend, Tensor mine, Tensor partial) const {
    if (!divides_rows_) return sum(mine);
    begin_add_up(partial);
    finish_add_up(backend, mine, partial);
}

void TensorGroup::begin_add_up(Tensor partial) const {
    if (alone()) return;
    const trace::OptionalScope timed(timed_ ? tracer_ : nullptr, region_);
    if (divides_rows_)
        communicator_->begin_reduce_scatter(partial.reshaped({partial.count()}),
                                            row_cuts(partial.size(0), partial.size(1)));
    else
        communicator_->begin_all_reduce(partial, cluster::Reduce::sum);
}

void TensorGroup::finish_add_up(Backend& backend, Tensor mine, Tensor partial) const {
    if (alone()) return;
    {
        const trace::OptionalScope timed(timed_ ? tracer_ : nullptr, region_);
        communicator_->finish_collectives();
    }
    const std::int64_t rows = partial.size(0);
    if (divides_rows_ && mine.count() > 0) backend.copy(mine, partial.slice(part_.first(rows), part_.count(rows)));
}

void InputGradient::complete() {
    if (group_ == nullptr || begun_) return;
    group_->begin_add_up(part_);
    begun_ = true;
}

void InputGradient::finish(Backend& backend) {
    complete();
    if (group_ != nullptr) group_->finish_add_up(backend, mine_, part_);
}

}  // namespace lockstep::model
