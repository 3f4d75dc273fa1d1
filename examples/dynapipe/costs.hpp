#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <CLI/CLI.hpp>

#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/cluster.hpp>
#include <dynapipe/cost/cost_model.hpp>
#include <dynapipe/cost/counts.hpp>
#include <dynapipe/cost/fitted.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/table.hpp>
#include <dynapipe/plan/options.hpp>

/// The cost model that a user names: the roofline, a measured profile, or fitted costs.

namespace command {

/// A cost model that is one of the library's, chosen at run time. Cheap to copy.
class any_cost {
 public:
  template <class Model>
  explicit any_cost(Model model) : model_{std::make_shared<const model_type>(std::move(model))} {}

  [[nodiscard]] std::string source() const {
    return std::visit([](const auto& m) { return std::string{m.source()}; }, *model_);
  }
  [[nodiscard]] bool convex_rows() const {
    return std::visit([](const auto& m) { return dynapipe::has_convex_rows(m); }, *model_);
  }
  template <dynapipe::micro_batch_shape Shape>
  [[nodiscard]] dynapipe::nanoseconds forward(dynapipe::layer_kind kind, const Shape& s,
                                              dynapipe::recompute_mode r) const {
    return ask<Shape>([&](const auto& m) { return m.forward(kind, s, r); }, dynapipe::nanoseconds::max());
  }
  template <dynapipe::micro_batch_shape Shape>
  [[nodiscard]] dynapipe::nanoseconds backward(dynapipe::layer_kind kind, const Shape& s,
                                               dynapipe::recompute_mode r) const {
    return ask<Shape>([&](const auto& m) { return m.backward(kind, s, r); }, dynapipe::nanoseconds::max());
  }
  template <dynapipe::micro_batch_shape Shape>
  [[nodiscard]] dynapipe::bytes stored(dynapipe::layer_kind kind, const Shape& s, dynapipe::recompute_mode r) const {
    return ask<Shape>([&](const auto& m) { return m.stored(kind, s, r); }, dynapipe::bytes::max());
  }
  template <dynapipe::micro_batch_shape Shape>
  [[nodiscard]] dynapipe::bytes forward_peak(dynapipe::layer_kind kind, const Shape& s,
                                             dynapipe::recompute_mode r) const {
    return ask<Shape>([&](const auto& m) { return m.forward_peak(kind, s, r); }, dynapipe::bytes::max());
  }
  template <dynapipe::micro_batch_shape Shape>
  [[nodiscard]] dynapipe::bytes backward_peak(dynapipe::layer_kind kind, const Shape& s,
                                              dynapipe::recompute_mode r) const {
    return ask<Shape>([&](const auto& m) { return m.backward_peak(kind, s, r); }, dynapipe::bytes::max());
  }
  [[nodiscard]] dynapipe::bytes state(dynapipe::layer_kind kind) const {
    return std::visit([&](const auto& m) { return m.state(kind); }, *model_);
  }
  template <dynapipe::micro_batch_shape Shape>
  [[nodiscard]] bool extrapolates(dynapipe::layer_kind kind, const Shape& s, dynapipe::recompute_mode r) const {
    return ask<Shape>([&](const auto& m) { return dynapipe::extrapolates(m, kind, s, r); }, false);
  }
  template <dynapipe::micro_batch_shape Shape>
  [[nodiscard]] std::string refusal(dynapipe::layer_kind kind, const Shape& s, dynapipe::recompute_mode r) const {
    return ask<Shape>(
        [&](const auto& m) { return dynapipe::refusal(m, kind, s, r); },
        std::string{"a measured table prices padded rows only: use --layout padded, or --costs of a fit"});
  }

 private:
  /// The answer of a model that prices such shapes, else `otherwise`.
  template <class Shape, class Question, class Answer>
  [[nodiscard]] Answer ask(Question&& question, Answer otherwise) const {
    return std::visit(
        [&](const auto& m) -> Answer {
          if constexpr (dynapipe::cost_model<std::remove_cvref_t<decltype(m)>, Shape>) {
            return question(m);
          } else {
            return otherwise;
          }
        },
        *model_);
  }

  using model_type = std::variant<dynapipe::analytic_cost, dynapipe::fitted_cost, dynapipe::table_cost>;
  std::shared_ptr<const model_type> model_;
};

static_assert(dynapipe::cost_model<any_cost> && dynapipe::cost_model<any_cost, dynapipe::varlen_shape>);

/// `--profile`, `--costs`, `--outside`, and the state's `--zero`.
struct cost_arguments {
  std::string profile;
  std::string costs;
  dynapipe::outside_policy outside = dynapipe::outside_policy::error;
  std::int64_t zero = 0;
};

/// A chosen cost model, the cluster with the links that were measured, and what a plan should say of it.
struct chosen_costs {
  dynapipe::cluster_spec cluster;
  any_cost cost;
  std::vector<std::pair<std::string, std::string>> provenance;
};

/// Adds the flags of `cost_arguments` and `--tp`, `--sequence-parallel`.
void add_costs(CLI::App& app, cost_arguments& arguments, dynapipe::planner_options& options);

/// The cost model that the arguments name. Throws `error` where a file is unusable, or measured another layer or
/// tensor-parallel degree than is asked for.
chosen_costs choose_costs(const cost_arguments& arguments, const dynapipe::model_spec& model,
                          const dynapipe::cluster_spec& cluster, const dynapipe::planner_options& options);

/// A profile: JSON, or measured CSV tables (`NAME_time.csv`, plain or gzipped).
dynapipe::profile read_profile(const std::string& path, std::int64_t tensor_parallel,
                               const dynapipe::model_spec& model = {});

}  // namespace command
