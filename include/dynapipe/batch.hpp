#pragma once

#include <dynapipe/batch/balance.hpp>
#include <dynapipe/batch/constraint.hpp>
#include <dynapipe/batch/order.hpp>
#include <dynapipe/batch/partition.hpp>
#include <dynapipe/batch/sample.hpp>
